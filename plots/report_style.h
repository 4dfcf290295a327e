/* report_style.h (private): the style sheet of report.html. */
#ifndef DPB_REPORT_STYLE_H
#define DPB_REPORT_STYLE_H

/* clang-format off */
static const char dpb_report_style[] =
    ":root { --ink: #1c2024; --soft: #5b6470; --paper: #ffffff; --panel: #f4f6f8; --line: #d5dae0;\n"
    "  --accent: #0b5a91; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #e4e8ec; --soft: #a0a9b4; --paper: #14171a; --panel: #1e2327;\n"
    "    --line: #3a4149; --accent: #7dbdf0; } }\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0; background: var(--paper); color: var(--ink);\n"
    "  font: 16px/1.55 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; }\n"
    "main { max-width: 84rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }\n"
    "h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }\n"
    "h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem;\n"
    "  border-bottom: 1px solid var(--line); }\n"
    "h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }\n"
    "p, ul { margin: .6rem 0; max-width: 58rem; }\n"
    "li { margin: .25rem 0; }\n"
    ".lead { font-size: 1.15rem; line-height: 1.5; padding: .9rem 1.1rem; max-width: none;\n"
    "  background: var(--panel); border-left: 4px solid var(--accent); border-radius: 4px; }\n"
    ".scroll { overflow-x: auto; margin: .8rem 0; }\n"
    "table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }\n"
    "th, td { padding: .26rem .55rem; text-align: left; border-bottom: 1px solid var(--line);\n"
    "  vertical-align: top; }\n"
    "th { font-weight: 600; color: var(--soft); vertical-align: bottom; }\n"
    "th.n, td.n { text-align: right; }\n"
    "td { min-width: 17rem; }\n"
    "td.n, td.s { min-width: 0; white-space: nowrap; }\n"
    "tbody tr:nth-child(even) { background: var(--panel); }\n"
    "pre { overflow-x: auto; padding: .8rem 1rem; background: var(--panel); border-radius: 4px;\n"
    "  font: .8rem/1.6 ui-monospace, 'DejaVu Sans Mono', monospace; }\n"
    "figure { margin: 1.25rem 0 2rem; max-width: 64rem; }\n"
    "figure svg { display: block; width: 100%; height: auto; }\n"
    "figcaption { font-size: .875rem; color: var(--soft); margin-top: .25rem; }\n"
    "a { color: var(--accent); }\n"
    "@media print { main { max-width: none; padding: 0; } figure, tr { break-inside: avoid; } }\n";
/* clang-format on */

#endif
