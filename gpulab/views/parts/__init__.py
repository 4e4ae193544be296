"""Parts of views: one display list, which Python paints as PNG and the browser paints on a canvas.

The contract
------------
A view's picture is a tree of *boxes*. These are frozen dataclasses, and the browser receives their fields;
many numbers are NumPy arrays. `pack` converts boxes to dictionaries and moves the arrays into one binary
buffer (``unpack`` in ``frame.js`` restores them as typed arrays). `picture.draw_png` paints the same tree
with Pillow. Neither knows any view. Python makes the words, the tick texts and the numbers; the browser
paints, zooms, pans, shows sentences and sends traits.

Boxes (module `boxes`) are stacked (`column`), or placed side by side and wrapped if there is little space
(`row`), or have contents: `words`, `legend`, `numbers` (term, value, detail), `bars`, `table`, `plot`.
`switch` shows the case for a trait's value, `slider` and `player` set a trait (browser only), `remarks` are
sentences that set one while they are focused, `fold` opens and closes. A box with ``only`` is in the
``"page"`` or the ``"picture"`` alone. In the browser, text boxes are DOM elements
(so they can be read aloud and copied), and a plot is a canvas.

A plot has a height in pixels, margins ``left`` and ``right`` in pixels, and a ``domain``: the range of data
units that its width represents. Its *items* have x in these units and y in pixels from the plot's top. The
painters scale x, so the browser can change the layout without Python, and text keeps its size. Items are the
frozen dataclasses of module `items` (`plots` makes some of them), and the browser receives their fields:
`Spans` (100,000 intervals and more over rows, merged pixel by pixel), `Rects`, `Polyline` (or area),
`LineSegments`, `Labels` (text), `TickAxis` (at several distances, for zooming), `ReadingMarks` (of which one
is selected, with its values at several heights). `draw_lane_grid` consists of these. `draw_dag` (module
`dag`) has its own item: nodes that can be selected, also by keys. `Tracks` are any number of
intervals over rows of individual heights, over a `TimeAxis`, with unlimited zoom, a search, and spans that
are measured. `Ring` has devices on a circle, with marks that travel between them. Charts have `axes`.

Tables have no scene: module `card` makes HTML with the same frame (``card.css``) and the same colours.

Colours are names of `palette.COLOURS` (``accent``, ``tail``, ``muted`` …), resolved in each theme.

The elements of an item with ``say`` can be pointed at, and selected with the arrow keys. ``say`` is the
sentence of an element as a list of pieces. A string represents itself, ``[column]`` an integer, and
``[column, texts]`` the text with that number (in a list, or in a list of the item with that name).
``[column, "time"]`` is a time in nanoseconds, from which a third column is subtracted, if there is one.
Columns are arrays with one value per element, in the item's `columns` or its fields. ``[column, "moved", end,
start]`` is a size in bytes and the rate at which it was moved, or nothing if the size is 0.

A plot with ``trait`` and ``values`` sends the value of the element that is selected, and outlines the element
of the trait's current value; ``marks`` are texts above it. Tracks with ``picks`` connect several traits to
columns: a node that is selected in a `draw_dag` plot with ``trait="node"`` is outlined in tracks with
``picks={"node": "node"}``.
"""
