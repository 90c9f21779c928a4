"""Parse a report page: its elements, text, tables, and the values that its charts show."""

import itertools
import re
from html.parser import HTMLParser

import numpy as np

VOID = {"br", "hr", "link", "meta"}
FORBIDDEN = {"script", "iframe", "object", "embed", "img", "form", "base", "b"}
LENGTHS = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "dx", "dy"}


class Node:
    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children = tag, attributes, []

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def walk(self):
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, tag, **wanted):
        def has(node, key, value):
            return value in (node.attributes.get(key.rstrip("_").replace("_", "-")) or "").split()

        found = (node for node in self.walk() if node.tag == tag)
        return [node for node in found if all(has(node, *item) for item in wanted.items())]

    def one(self, tag, **wanted):
        (found,) = self.all(tag, **wanted)
        return found

    def rows(self):
        """Return the cells of a table, header first."""
        return [[cell.text for cell in row.all("th") + row.all("td")] for row in self.all("tr")]


class Tree(HTMLParser):
    """The tree of a page; an end tag that does not match fails."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Node("document", {})
        self.stack = [self.root]

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs)), f"repeated attribute in <{tag}>"
        node = Node(tag, dict(attrs))
        self.stack[-1].children.append(node)
        if tag not in VOID:
            self.stack.append(node)

    def handle_endtag(self, tag):
        assert self.stack[-1].tag == tag, f"</{tag}> closes <{self.stack[-1].tag}>"
        self.stack.pop()

    def handle_data(self, data):
        self.stack[-1].children.append(data)


def parse(page):
    tree = Tree()
    tree.feed(page)
    tree.close()
    assert tree.stack == [tree.root]
    return tree.root


def checked(page):
    """Return the tree of a page, after the checks that apply to every page."""
    root = parse(page)
    ids = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in root.walk():
        assert node.tag not in FORBIDDEN, node.tag
        assert not any(name.startswith("on") for name in node.attributes), node.attributes
        assert set((node.attributes.get("aria-labelledby") or "").split()) <= set(ids)
        for name in ("href", "src", "xlink:href"):
            target = node.attributes.get(name)
            assert target is None or target == "data:," or target.removeprefix("#") in ids, target
    levels = [int(node.tag[1]) for node in root.walk() if re.fullmatch("h[1-6]", node.tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for figure in root.all("figure"):
        check_figure(figure)
    for table in root.all("table"):
        assert table.one("caption").text.strip()
        assert all(cell.attributes.get("scope") in ("row", "col") for cell in table.all("th"))
        assert len({len(row) for row in table.rows()}) == 1
    for node in root.one("main").walk():
        if node.tag != "code":
            own = "".join(child for child in node.children if isinstance(child, str))
            assert not re.search(r"\b(nan|inf|None|Markup)\b", own), own
    return root


def check_figure(figure):
    drawn = figure.one("svg", role="img")
    (title, *tips), description = figure.all("title"), figure.one("desc")
    assert len(tips) == len(figure.all("rect", class_="tip"))
    assert drawn.attributes["aria-labelledby"].split() == [title.attributes["id"], description.attributes["id"]]
    assert all(node.text.strip() for node in (title, *tips, description, figure.one("figcaption")))
    assert len(figure.one("details").one("table").all("tr")) > 1
    for node in drawn.walk():
        for name, value in node.attributes.items():
            if name in LENGTHS:
                assert re.fullmatch(r"-?\d+(\.\d+)?%?", value), (name, value)
            if name == "d":
                assert re.fullmatch(r"(M[-\d. ]+|L[-\d. ]+|[HZ][-\d. ]*)+", value), value
            if name in {"cx", "x1", "x2", "width"} and value.endswith("%"):
                assert -0.01 <= float(value[:-1]) <= 100.01, (name, value)


def section(root, name):
    return root.one("section", aria_labelledby=name)


def words(node):
    return " ".join(node.text.split())


def numbers(page, figure):
    return page.one("figure", id=figure).one("table").rows()


def scale(drawn, which):
    """Return a function from percent of the drawing to values, fitted to the labeled ticks of an axis."""
    at, values = [], []
    for node in drawn.all("text"):
        number = re.fullmatch(r"(−?[\d,.]+)(%?)", node.text)
        on_axis = node.attributes.get("text-anchor") == ("end" if which == "y" else "middle")
        if number and on_axis and node.attributes[which].endswith("%"):
            at.append(float(node.attributes[which][:-1]))
            values.append(float(number[1].replace("−", "-").replace(",", "")) / (100 if number[2] else 1))
    slope, start = np.polyfit(at, values, 1)
    assert np.allclose(np.polyval([slope, start], at), values, atol=1e-3 * np.ptp(values))
    return lambda place: slope * place + start


def drawn_curves(figure):
    """Return the points of each curve, converted by the axes."""
    x, y = scale(figure.one("svg", role="img"), "x"), scale(figure.one("svg", role="img"), "y")
    found = {}
    for path in figure.one("svg", role="img").all("path", class_="curve"):
        places = [pair.split() for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", path.attributes["d"])]
        found[path.attributes["class"]] = [(x(float(right) / 10), y(float(down) / 10)) for right, down in places]
    return found
