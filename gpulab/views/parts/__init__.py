"""Parts that views are made of: one display list, painted by Python (PNG) and by one canvas painter.

The contract
------------
A view's picture is a tree of *boxes*, frozen dataclasses whose fields are what the browser gets, with NumPy
arrays where there are many numbers. `pack` makes dictionaries of them and moves the arrays into one binary
buffer (``unpack`` in ``frame.js`` puts typed arrays back); `picture.png` paints the same tree with Pillow.
Neither knows any view. Words, tick texts and figures are made in Python; the browser paints, zooms, pans,
points at things and sends traits.

Boxes (module `boxes`) stack (`column`), stand side by side and wrap where it is narrow (`row`), or
hold something: `words`, `legend`, `numbers` (term, value, detail), `bars`, `table`, `plot`; `switch`
shows the case of a trait's value, `slider` sets a trait (browser only), `fold` opens and closes. A box
with ``only`` is in the ``"page"`` or the ``"picture"`` alone. The browser makes text boxes DOM (so they
can be read aloud and copied) and a plot a canvas.

A plot has a height in pixels, margins ``left`` and ``right`` in pixels, and a ``domain``: the data
units that its width stands for. *Items* in it have x in these units and y in pixels from the plot's
top; the painters scale x, so a page is laid out anew without Python, and text keeps its size. Items are
the frozen dataclasses of module `items` (`plots` makes some of them), their fields what the browser gets:
`Spans` (intervals over rows, merged pixel by pixel, 100,000 and more), `Rects`, `Line` (or area),
`Rules` (segments), `Labels` (text), `Ticks` (in several finenesses, for zooming). `lane_grid` is
made of these; `dag` (module `dag`) has an item of its own, nodes that are walked and picked. `Tracks` are
intervals of any number over rows of their own heights, zoomed to any depth, with a search, over
`Time`. Charts stand on `axes`.

Colours are names of `palette.COLOURS` (``accent``, ``tail``, ``muted`` …), resolved in each theme.

An item with ``say`` can be pointed at and walked with the arrow keys. Its sentence is a list of pieces:
a string is itself, ``[column]`` a whole number, ``[column, texts]`` the text with that number (a list,
or the name of one in the item), ``[column, "time"]`` a time in nanoseconds, less that of a third, if any;
the columns are arrays with one element a span or rect, an item's `columns` or its own.
``[column, "moved", end, start]`` is a size in bytes and the rate at which it was moved, or nothing where it
is 0.

A plot with ``trait`` and ``values`` sends the value of what is clicked or walked to, and outlines what
the trait holds; ``marks`` are texts above it. Tracks with ``picks`` tie several traits to columns:
a node chosen in a `dag` with ``trait="node"`` is outlined in tracks with ``picks={"node": "node"}``.
"""
