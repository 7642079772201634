"""hooks.py: what MkDocs asks while it makes a page: formulas to MathML."""
import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
MINUS = re.compile(r"<mo>&#x02212;</mo>")
OPERAND = re.compile(r"</m(?:i|n|row|sub|sup|subsup|frac|sqrt|over|text)>$"
                     r"|&#x000(?:29|5D|7D);</mo>$")  # or a closing bracket
NAMES = "<m(?:i|o)>(?:ln|log|exp|tanh)</m(?:i|o)>"
UNCOLOURED = re.compile(r'<span class="[^cksm"][^"]*">([^<]*)</span>')  # source.css has no colour for it
SPACE = '<mspace width="0.17em"></mspace>'


def corrected(drawn):
    """What latex2mathml leaves: infinity is a number, a minus in front of a number its sign, an
    underscore itself, a bar as tall as a letter, and the name of a function stands apart from what is beside it."""
    drawn = drawn.replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>").replace("\\_", "_")
    drawn = re.sub(r"<mo>(\||&#x0007C;)</mo>", r'<mo stretchy="false">\1</mo>', drawn)
    out, at = "", 0
    for minus in MINUS.finditer(drawn):
        out += drawn[at:minus.start()]
        form = "infix" if OPERAND.search(out) else "prefix"
        out += f'<mo form="{form}">&#x02212;</mo>'
        at = minus.end()
    out += drawn[at:]
    out = re.sub(rf"(</m(?:i|n|sub|sup|subsup)>)((?:<msub>)?{NAMES})", rf"\1{SPACE}\2", out)
    return re.sub(rf"({NAMES}(?:<m[in]>\w+</m[in]></msub>)?)(?=<m(?:i|n|sub|sup|frac|row)>)",
                  rf"\1{SPACE}", out)


def on_page_content(content, page, **_):
    if "template" in page.meta:  # a source page
        return UNCOLOURED.sub(r"\1", content)

    def formula(match):
        display = "block" if match[2] == "[" else "inline"
        drawn = corrected(convert(html.unescape(match[3]).strip(), display=display))
        return f'<div class="formula">{drawn}</div>' if display == "block" else drawn
    if lost := re.search(r"\n *(?:[-*+]|1\.) .*", re.sub(r"<pre.*?</pre>", "", content, flags=re.S)):
        raise PluginError(f"{page.file.src_uri}: no list, for want of four blanks in an item or an empty line: {lost[0]}")
    whole = re.sub(r"(?<=\d) \((\d+) %", r"&nbsp;(\1&nbsp;%", content)  # 0.355 (24 %)
    return FORMULA.sub(formula, whole)


def on_post_page(output, **_):
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')  # which the theme forgets
