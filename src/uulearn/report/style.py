"""How the page looks: colours for light and dark, and the style sheet made of them."""

from __future__ import annotations

LIGHT = {
    "page": "#ffffff",
    "box": "#f4f6f8",
    "ink": "#1a1f26",
    "muted": "#535d69",
    "line": "#d3d9df",
    "link": "#0a58a8",
    "alert": "#fff4e0",
    "alert-ink": "#7a4100",
    "first": "#0b61b3",
    "second": "#ad4a0a",
    "total": "#1a1f26",
    "third": "#7b3fa0",
    "mark": "#a3203a",
    "below": "#fbe9ea",
}
DARK = {
    "page": "#14181d",
    "box": "#1e242b",
    "ink": "#e8ebef",
    "muted": "#aab4bf",
    "line": "#3b444e",
    "link": "#7db8ff",
    "alert": "#33270f",
    "alert-ink": "#ffc56e",
    "first": "#6cb2ff",
    "second": "#f5a35c",
    "total": "#e8ebef",
    "third": "#cf9cf0",
    "mark": "#ff8a9c",
    "below": "#33202a",
}
READ_ON = {
    "page": ("ink", "muted", "link", "first", "second", "total", "third", "mark"),
    "box": ("ink", "muted", "link"),
    "alert": ("ink", "alert-ink"),
    "below": ("muted", "first", "second", "total", "third", "mark"),
}
"""Which colours carry meaning on which ground: each pair has to be told apart (WCAG 2.2, 4.5 to 1)."""

RULES = """
*, ::before, ::after { box-sizing: border-box }
html { color-scheme: light dark; -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif }
header, main, footer { max-width: 56rem; margin: 0 auto; padding: 0 1.25rem }
header { padding-top: 1.5rem }
main { padding-bottom: 1rem }
main:focus { outline: none }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.75rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line) }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem }
p, ul, ol, dl { margin: .5rem 0; max-width: 46rem }
a { color: var(--link) }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 2px }
.skip { position: absolute; left: .5rem; top: -4rem; background: var(--page); padding: .5rem 1rem; z-index: 1 }
.skip:focus { top: .5rem }
.muted { color: var(--muted) }
.verdict { background: var(--box); border-radius: .6rem; padding: 1rem 1.25rem; margin: 1rem 0 }
.verdict h2 { border: 0; margin: 0; padding: 0; font-size: 1rem; color: var(--muted); font-weight: 600 }
.verdict .figure { font-size: 2.6rem; line-height: 1.15; font-weight: 700; margin: .1rem 0; max-width: none }
.verdict .figure span { font-size: 1.1rem; font-weight: 400; color: var(--muted); white-space: nowrap }
.warning { background: var(--alert); border-left: .3rem solid var(--alert-ink); border-radius: .3rem;
  padding: .6rem 1rem; margin: .75rem 0 }
.warning h3 { color: var(--alert-ink); margin: 0 }
.warning p { max-width: none }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; max-width: none }
nav a { display: inline-block; padding: .25rem 0 }
dl.pairs { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; max-width: none }
dl.pairs dt { color: var(--muted) }
dl.pairs dd { margin: 0; min-width: 0 }
.scroll, pre { overflow-x: auto; max-width: 100% }
.scroll { margin: .75rem 0 }
table { border-collapse: collapse; font-size: .92rem; overflow-wrap: normal }
caption { text-align: left; color: var(--muted); padding-bottom: .35rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line) }
th { font-weight: 600 }
tbody th { font-weight: 400; overflow-wrap: anywhere; min-width: 7rem; max-width: 22rem }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td:not(.number) { min-width: 9rem; max-width: 30rem; overflow-wrap: anywhere }
th small, td small { display: block; font-size: inherit; color: var(--muted) }
pre { background: var(--box); border-radius: .4rem; padding: .7rem .9rem; margin: .5rem 0 1rem;
  font: .88rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: normal }
code { font-family: inherit }
details { margin: .6rem 0 }
summary { cursor: pointer; color: var(--link); padding: .3rem 0 }
figure { margin: 1.25rem 0 1.75rem; overflow: hidden }
figcaption { max-width: 46rem; margin-bottom: .5rem }
dd { margin: 0 0 .6rem 1.25rem }
.legend { list-style: none; padding: 0; margin: .35rem 0; display: flex; flex-wrap: wrap; gap: .15rem 1.25rem;
  font-size: .92rem; max-width: none }
.legend li { display: flex; gap: .45rem; align-items: center }
.legend bdi { text-align: left }
.legend svg { width: 1.9rem; height: .8rem; flex: none }
footer { color: var(--muted); padding-top: 1rem; padding-bottom: 2rem; font-size: .92rem }

.plot { display: block; width: 100%; overflow: visible }
.plot text { font-size: 12.5px; fill: var(--muted) }
.plot .name { fill: var(--ink) }
.plot .grid { stroke: var(--line); stroke-width: 1 }
.plot .zero { stroke: var(--muted); stroke-width: 1.25 }
.plot .ground { fill: var(--below) }
.plot .canvas { overflow: visible }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke }
.wide { stroke-width: 3 }
.thin { stroke-width: 1.5 }
.dashed { stroke-dasharray: 7 4 }
.dotted { stroke-dasharray: 2 3 }
.curve.first, .whisker.first { stroke: var(--first) }
.curve.second, .whisker.second { stroke: var(--second) }
.curve.third, .whisker.third { stroke: var(--third) }
.curve.total { stroke: var(--total) }
.curve.quiet { stroke: var(--muted) }
.fill { stroke: none; fill-opacity: .2 }
.fill.first, .dot.first, .bar { fill: var(--first) }
.fill.second, .dot.second { fill: var(--second) }
.bar { fill-opacity: .5 }
.fill.third, .dot.third { fill: var(--third) }
.dot.total { fill: var(--total) }
.dot.quiet { fill: var(--muted) }
.whisker { stroke-width: 2 }
.whisker.over { stroke: var(--ink); stroke-width: 1.5 }
.event { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 5 4 }
.event.quiet { stroke: var(--muted) }
.plot text.event-name { fill: var(--mark); stroke: var(--page); stroke-width: 8px;
  stroke-linejoin: round; paint-order: stroke }
.plot text.event-name.quiet { fill: var(--muted) }

@media (max-width: 34rem) {
  header, main, footer { padding-left: 1rem; padding-right: 1rem }
  h1 { font-size: 1.45rem }
  dl.pairs { grid-template-columns: 1fr; gap: 0 }
  dl.pairs dd { margin-bottom: .5rem }
  .verdict { padding: .8rem 1rem }
  .verdict .figure { font-size: 2.2rem }
  .verdict .figure span { display: block; white-space: normal }
}
@media print {
  @page { size: A4; margin: 16mm 15mm }
  html { font-size: 10pt }
  header, main, footer { max-width: none; padding: 0 }
  nav, .skip, details:not([open]) { display: none }
  h2 { margin-top: 1.5rem }
  h2, h3, caption, summary, p:has(+ pre) { break-after: avoid }
  figure, .warning, .verdict, pre, tr { break-inside: avoid }
  p { orphans: 3; widows: 3 }
  .verdict, .warning, pre { border: 1px solid var(--line) }
  .scroll, pre { overflow: visible }
  pre { white-space: pre-wrap; overflow-wrap: anywhere }
  a { color: inherit; text-decoration: none }
}
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth } }
"""


def style_sheet() -> str:
    """The whole style sheet; paper is always light."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{{_variables(DARK)}}} }}"
    return f":root {{{_variables(LIGHT)}}}\n{dark}{RULES}"


def _variables(colours: dict[str, str]) -> str:
    return "; ".join(f"--{name}: {value}" for name, value in colours.items())
