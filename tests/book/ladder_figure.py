"""ladder_figure.py: the figure "The ladder in time" against the recording that the site was built
with, which this file reads in its own way: every share of time in the tables of two rungs, zoomed
and not.

    ladder_figure.py FILE      writes an invented recording, for a tree that has no real one
"""
import csv
import random
import sys

PAGE = "notes/figures/ladder.html"
RUNGS = {7: ["warpgroup"], 8: ["producer", "consumer 0", "consumer 1"],
         9: ["producer", "consumer 0", "consumer 1"]}


def invent(path):
    """Waits, products and a softmax of random lengths, block after block."""
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow("rung variant dtype batch heads seqlen head_dim causal role begin bars "
                     "slowdown date commit machine compiler".split())
        for rung, roles in RUNGS.items():
            for causal in (0, 1):
                for role in roles:
                    letters = "ec" if role == "producer" else "ktqpsvp"
                    bars = [f"{letter}{draw.randrange(20, 900)}" for _ in range(12)
                            for letter in letters]
                    out.writerow([rung, f"invented_{rung}", "bf16", 4, 16, 1024, 128, causal, role,
                                  draw.randrange(300), " ".join(bars), "1.10", "2000-01-02",
                                  "0000000", "invented GPU", "none"])


def bars_of(line):
    """[(letter, begin, end)] of a line."""
    at, out = int(line["begin"]), []
    for word in line["bars"].split():
        out.append((word[0], at, at + int(word[1:])))
        at += int(word[1:])
    return out


def share(bars, what, begin, end):
    """Percent of begin ... end in which a row does `what`."""
    cycles = sum(max(0, min(e, end) - max(b, begin)) for w, b, e in bars if w == what)
    return 100 * cycles / (end - begin)


def together(rows, begin, end):
    """The same for all rows at once in the softmax, found cycle by cycle."""
    inside = [set() for _ in rows]
    for cycles, bars in zip(inside, rows):
        for what, b, e in bars:
            if what == "s":
                cycles.update(range(max(b, begin), min(e, end)))
    return 100 * len(set.intersection(*inside)) / (end - begin)


def check(browser, site, recording, fault, cell, listen):
    """Opens states of the figure, compares its numbers, and drives it by keys."""
    page = (site / PAGE).as_uri()
    with open(recording, encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    rungs = sorted({int(line["rung"]) for line in lines})
    shapes = sorted({(line["head_dim"], line["causal"]) for line in lines})
    compared = 0
    for shape in shapes:
        for rung, beside, begin, end in [(rung, rungs[-1], 0, 12000) for rung in rungs] + \
                [(rungs[-1], rungs[0], 1500, 2300)]:
            state = f"rung={rung}&beside={beside}&shape={'-'.join(shape)}&from={begin}&to={end}"
            browser.get("about:blank")
            browser.get(f"{page}#figure=ladder&{state}")
            for place, number in enumerate((rung, beside)):
                rows = {line["role"]: bars_of(line) for line in lines
                        if int(line["rung"]) == number
                        and (line["head_dim"], line["causal"]) == shape}
                want = {f"{place}-{role}-{what}": share(bars, what, begin, end)
                        for role, bars in rows.items() for what in {w for w, _, _ in bars}}
                want[f"{place}-convoy"] = together(
                    [bars for role, bars in rows.items() if role != "producer"], begin, end)
                for name, value in want.items():
                    got = cell(browser, name)
                    compared += 1
                    if not got.endswith(" %") or abs(float(got[:-2]) - value) > 0.0501:
                        fault(f"ladder {state}: {name} is {got}, the CSV says {value:.2f}")
    drive(browser, page, fault, cell)
    listen(browser, "ladder")
    print(f"book: {compared} shares of time compared with the recording")


def drive(browser, page, fault, cell):
    """Keys: zoom, move, all, and the bar that is read out; the address follows."""
    browser.get("about:blank")
    browser.get(f"{page}#figure=ladder&from=1000&to=3000")
    figure = browser.find_element("css selector", "[data-figure]")
    for keys, want in (("+", "cycles 1500 to 2500"), ("\ue014", "cycles 1750 to 2750"),
                       ("\ue012", "cycles 1500 to 2500"), ("-", "cycles 1000 to 3000")):
        figure.send_keys(keys)
        if cell(browser, "range") != want:
            fault(f"ladder: after {keys!r} {cell(browser, 'range')}, not {want}")
    figure.send_keys("\ue015") # down: the next row
    figure.send_keys(".")
    spoken = browser.find_element("css selector", ".fig-spoken").text
    if "consumer 0" not in spoken or "cycles, from" not in spoken:
        fault(f"ladder: the keys read out '{spoken}'")
    if "row=1" not in browser.current_url or "from=" not in browser.current_url:
        fault("ladder: the address does not hold the state")


if __name__ == "__main__":
    invent(sys.argv[1])
