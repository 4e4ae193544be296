"""HTML page with one view, which needs no kernel, no network and no other files.

The view fills the window; with ``?notebook`` after the page's address it has the layout of a notebook.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from typing import Any

SAVED_NOTE = (
    "Saved page: it works without Python and without a network. Controls that need Python are switched off."
)

_PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ margin: 12px; background: #ffffff; font-family: system-ui, sans-serif; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; }} }}
body:has(.gl-page) {{ margin: 0; }}
{css}</style></head><body><main id="view"></main>
<noscript><p>{words}</p><img alt="{title}" src="data:image/png;base64,{picture}"></noscript>
<script type="module">
{module}
const traits = {traits};
for (const [name, value] of Object.entries(traits)) {{
  if (value?.$bytes === undefined) continue;
  traits[name] = new DataView(Uint8Array.from(atob(value.$bytes), (c) => c.charCodeAt(0)).buffer);
}}
const listeners = new Map();
gpulabView.render({{
  el: document.getElementById("view"),
  model: {{
    get: (name) => traits[name],
    set(name, value) {{
      if (traits[name] === value) return;
      traits[name] = value;
      [...(listeners.get(`change:${{name}}`) ?? [])].forEach((listener) => listener());
    }},
    save_changes() {{}},
    send() {{}},
    on: (event, listener) => listeners.set(event, [...(listeners.get(event) ?? []), listener]),
    off: (event, listener) =>
      listeners.set(event, (listeners.get(event) ?? []).filter((other) => other !== listener)),
  }},
}});
</script></body></html>
"""


def make_page(
    traits: Mapping[str, Any], module: str, css: str, title: str, description: str, picture: bytes
) -> str:
    """Return the complete HTML page of a view.

    Parameters
    ----------
    traits
        The values that the browser reads: JSON values, and bytes.
    module
        The view's ES module, without imports.
    description, picture
        The view in words and as PNG, for a reader without scripts.
    """
    trait_values = {
        name: {"$bytes": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value
        for name, value in traits.items()
    }
    # A "<" inside a script could end it.
    traits_text = json.dumps(trait_values | {"saved": SAVED_NOTE}, ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE_TEMPLATE.format(
        title=html.escape(title, quote=True),
        css=css,
        words=html.escape(description),
        picture=base64.b64encode(picture).decode("ascii"),
        module=module.replace("export default", "const gpulabView ="),
        traits=traits_text,
    )
