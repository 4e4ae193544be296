"""Colours by name, in the light and the dark theme; all colours are defined here."""

from __future__ import annotations

from collections.abc import Iterable

# Okabe and Ito's colours, which are distinct for every common kind of colour vision; lighter in the dark
# theme.
COLOURS: dict[str, tuple[str, str]] = {
    "fg": ("#1f2328", "#e6edf3"),
    "muted": ("#57606a", "#a5b0bb"),
    "bg": ("#ffffff", "#0d1117"),
    "panel": ("#f6f8fa", "#1d2329"),
    "rule": ("#d0d7de", "#454e58"),
    "grid": ("#eaeef2", "#30373f"),
    "accent": ("#0072b2", "#4aa8e0"),
    "accent-2": ("#56b4e9", "#2b6f9b"),
    "tail": ("#d55e00", "#f0803c"),
    "tail-text": ("#a94400", "#f0803c"),
    "warn": ("#e69f00", "#efb93b"),
    "good": ("#009e73", "#2fbf93"),
    "good-text": ("#00704f", "#2fbf93"),
    "purple": ("#cc79a7", "#d793b8"),
    "kernel-3": ("#5c4a9e", "#a597e8"),
    "kernel-4": ("#117a8b", "#3fb6c8"),
    "kernel-5": ("#8a3b5e", "#d58bab"),
    "kernels": ("#6b7885", "#8f9ba8"),
    "other": ("#b6bfc8", "#5a6672"),
    "on-accent": ("#ffffff", "#0b1117"),
    "on-accent-2": ("#0b1117", "#ffffff"),
    "on-tail": ("#000000", "#0b1117"),
    "on-good": ("#0b1117", "#0b1117"),
    "on-warn": ("#0b1117", "#0b1117"),
    "on-purple": ("#0b1117", "#0b1117"),
    "on-kernel-3": ("#ffffff", "#0b1117"),
    "on-kernel-4": ("#ffffff", "#0b1117"),
    "on-kernel-5": ("#ffffff", "#0b1117"),
    "on-kernels": ("#ffffff", "#0b1117"),
    "on-muted": ("#ffffff", "#0b1117"),
    "on-error": ("#ffffff", "#0b1117"),
    "range": ("#c9b8e8", "#54427a"),
    "highlight": ("#fff3c4", "#4a3f12"),
    "error": ("#a40e26", "#ffb1ba"),
    "error-bg": ("#ffebe9", "#4a1a20"),
    # Kinds of tokens in source code (`gpulab.views.parts.cuda`), on `panel`, `grid` and `highlight`.
    "code-keyword": ("#00692c", "#7fd08a"),
    "code-type": ("#6f36b0", "#c9a8ff"),
    "code-builtin": ("#0a58a5", "#7cc0ff"),
    "code-call": ("#854000", "#f2b879"),
    "code-number": ("#006672", "#6bd3cb"),
    "code-string": ("#a31515", "#ffab9b"),
    "code-meta": ("#8a2470", "#eba6d8"),
}
# The 32 lanes of a warp, in the order of the rainbow (OKLCH 0.74 0.135, hue 262 down to -38), equal in both
# themes. Neighbours have similar colours, so that a stride is visible.
LANE_COLOURS = (
    "#7baaff",
    "#68affd",
    "#53b4f9",
    "#3ab8f2",
    "#17bce9",
    "#00c0de",
    "#00c3d2",
    "#00c5c4",
    "#00c6b5",
    "#1ec6a6",
    "#3fc596",
    "#58c486",
    "#6ec175",
    "#82be65",
    "#95ba56",
    "#a5b548",
    "#b5b03c",
    "#c2ab34",
    "#cea532",
    "#d99f36",
    "#e2993f",
    "#e9944b",
    "#ee8f59",
    "#f28b68",
    "#f48877",
    "#f48687",
    "#f28497",
    "#ef84a6",
    "#ea85b5",
    "#e487c4",
    "#dc8ad1",
    "#d28ddd",
)
for _lane, _colour in enumerate(LANE_COLOURS):
    COLOURS[f"lane-{_lane}"] = (_colour, _colour)
COLOURS["on-lane"] = ("#0b1117", "#0b1117")
# The states of a lane (`gpulab.views.warp.states`), with the colour of letters on each.
LANE_STATES = {"active": "accent", "inactive": "grid", "off": "warn", "none": "bg"}
for _state, _name in LANE_STATES.items():
    COLOURS[f"lane-{_state}"] = COLOURS[_name]
    COLOURS[f"on-lane-{_state}"] = COLOURS.get(f"on-{_name}", COLOURS["muted"])
COLOURS["code-comment"] = COLOURS["muted"]
KERNEL_COLOURS = ("accent", "accent-2", "kernel-3", "kernel-4", "kernel-5", "kernels")
"""Colours of kernels, in the order in which their names appear; all further names share the last one."""
PALE_COLOURS = (*KERNEL_COLOURS, "good", "warn", "purple", "tail", "other", "muted", "error", "range")
"""Colours with a pale form, ``NAME-pale``: 40 % of the colour on the background of a row (``panel``)."""


def _mix_colours(colour: str, background: str, colour_share: float) -> str:
    byte_pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(background[1:]), strict=True)
    return (
        "#"
        + bytes(
            round(colour_share * colour_byte + (1 - colour_share) * background_byte)
            for colour_byte, background_byte in byte_pairs
        ).hex()
    )


for _name in PALE_COLOURS:
    _light, _dark = (_mix_colours(COLOURS[_name][_theme], COLOURS["panel"][_theme], 0.4) for _theme in (0, 1))
    COLOURS[f"{_name}-pale"] = (_light, _dark)
# Colours that the page can define, so that a view has the notebook's own background.
_PAGE_COLOURS = {
    "fg": "var(--jp-ui-font-color0, var(--vscode-editor-foreground, {}))",
    "bg": "var(--jp-layout-color1, var(--vscode-editor-background, {}))",
}
LIGHT_METADATA = {"needs_background": "light"}
"""Metadata of an output with a picture on a light background."""
# JupyterLab turns the metadata into a CSS class. In a dark theme, the picture's lightness is inverted and its
# hues stay.
_PICTURE_RULE = (
    'body[data-jp-theme-light="false"] .jp-RenderedImage img.jp-needs-light-background '
    "{ filter: invert(0.87) hue-rotate(180deg); }"
)
# Sources of the dark theme: JupyterLab, VS Code, or else the system.
_DARK_SELECTORS = 'body[data-jp-theme-light="false"] {0}, body.vscode-dark {0}'
_SYSTEM_DARK = 'body:not([data-jp-theme-light]):not([class*="vscode"]) {0}'


def find_hex(name: str) -> str:
    """Return a named colour for the light background of static pictures, in the form ``#rrggbb``."""
    return COLOURS[name][0]


def choose_ink(name: str) -> str:
    """Return the name of the text colour that is legible on the given background colour."""
    return f"on-{name}" if f"on-{name}" in COLOURS else "fg"


def make_dark_rule(selector: str, declarations: str) -> str:
    """Return a CSS rule for the elements of `selector` on a page with a dark theme."""
    return (
        f"{_DARK_SELECTORS.format(selector)} {{ {declarations} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {_SYSTEM_DARK.format(selector)} {{ {declarations} }} }}\n"
    )


def make_colour_rules(root: str, names: Iterable[str]) -> str:
    """Return a style sheet that defines the named colours as variables ``--gl-NAME`` of `root` for both
    themes.
    """
    names = tuple(names)
    light_rules, dark_rules = (
        " ".join(
            f"--gl-{name}: {_PAGE_COLOURS.get(name, '{}').format(COLOURS[name][theme])};" for name in names
        )
        for theme in (0, 1)
    )
    return f"{root} {{ {light_rules} }}\n{make_dark_rule(root, dark_rules)}"


def make_css(root: str = ".gpulab-view") -> str:
    """Return the style sheet of all colours, and the CSS rule for pictures on a dark page."""
    return f"{make_colour_rules(root, COLOURS)}{_PICTURE_RULE}\n"
