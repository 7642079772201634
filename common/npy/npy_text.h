/* npy_text.h: the one line of text that the .npy reader and writer return on failure. */
#ifndef NPY_TEXT_H
#define NPY_TEXT_H

/* Formats a line, printf style, into memory of this thread that the next call reuses, and
 * returns it.  Control characters (of file names, of header text) become '?'. */
const char *npy_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
