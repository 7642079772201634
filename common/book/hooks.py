"""hooks.py: what MkDocs asks while it makes a page: formulas to MathML."""
import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def on_page_content(content, **_):
    def formula(match):
        display = "block" if match[2] == "[" else "inline"
        drawn = convert(html.unescape(match[3]).strip(), display=display)
        return f'<div class="formula">{drawn}</div>' if display == "block" else drawn
    return FORMULA.sub(formula, content)
