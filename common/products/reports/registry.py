"""registry.py: the names of all tables and figures, each beside the function that makes it."""
TABLES, FIGURES = {}, {}


def table(pattern):
    """Registers a function (data, *parts of the name) -> (a sentence above or '', lines of Markdown,
    the measurements in them).  `pattern` is the name, or a regular expression whose groups are
    the parts."""
    def register(make):
        TABLES[pattern] = make
        return make
    return register


def figure(name):
    """Registers a function data -> a figure of matplotlib."""
    def register(draw):
        FIGURES[name] = draw
        return draw
    return register
