/* built_for.c: which instructions the compiler was told it may use.  Data only: this file is compiled
 * with the flags of all others, so its code might need what it is to be asked about. */
#include "program/processor.h"

#include <stddef.h>

#define TEXT(x) #x
#define SET(name, macro) TEXT(macro),
const char *const built_for[] = {INSTRUCTION_SETS(SET) NULL};
