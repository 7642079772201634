"""registry.py: the names of all tables and figures, each beside the function that makes it.

    @table(pattern)   (data, *parts of the name) -> (a sentence above or '', lines of Markdown, the measurements
                      in them).  `pattern` is the name, or a regular expression whose groups are the parts
    @figure(name)     data -> a figure of matplotlib
"""
TABLES, FIGURES = {}, {}


def table(name, known=TABLES):
    def register(make):
        known[name] = make
        return make
    return register


def figure(name):
    return table(name, FIGURES)
