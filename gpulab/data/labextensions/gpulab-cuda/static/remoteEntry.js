// Aids in JupyterLab 4 and Notebook 7: CUDA C++ in colour where it stands in Python's triple-quoted strings, pictures
// instead of widgets that are not stored, descriptions of pictures, definitions of terms, and advice after a restart.
//
// This file is a federated extension as JupyterLab loads them (`init` takes the modules that all share, `get`
// gives the plugin), written as it runs: there is nothing to build. It paints what is on the screen, marks lines that
// errors and verdicts on the page name, and leaves text, selection and Python's own colours alone.
(() => {
  "use strict";

  const NAME = "gpulab-cuda";
  const STYLE = {
    keyword: "color: var(--jp-mirror-editor-keyword-color); font-weight: bold",
    type: "color: var(--jp-mirror-editor-variable-2-color, var(--jp-mirror-editor-def-color))",
    builtin: "color: var(--jp-mirror-editor-builtin-color)",
    number: "color: var(--jp-mirror-editor-number-color)",
    comment: "color: var(--jp-mirror-editor-comment-color); font-style: italic",
    string: "color: var(--jp-mirror-editor-string-color)",
    meta: "color: var(--jp-mirror-editor-meta-color)",
    call: "color: var(--jp-mirror-editor-def-color)",
    plain: "color: var(--jp-mirror-editor-variable-color)",
  };
  const WORDS = {
    keyword: `__global__ __device__ __host__ __shared__ __constant__ __managed__ __restrict__ __forceinline__
      __noinline__ __launch_bounds__ __grid_constant__ alignas alignof asm auto break case class const const_cast
      consteval constexpr constinit continue decltype default delete do dynamic_cast else enum explicit extern
      false final for friend goto if inline mutable namespace new noexcept nullptr operator override private
      protected public register reinterpret_cast requires return sizeof static static_assert static_cast struct
      switch template this throw true try catch typedef typename union using virtual volatile while concept`,
    type: `bool char char8_t char16_t char32_t double float int long short signed unsigned void wchar_t size_t
      ptrdiff_t half half2 __half __half2 __nv_bfloat16 __nv_bfloat162 dim3 cudaStream_t clock_t`,
    builtin: "threadIdx blockIdx blockDim gridDim warpSize",
  };
  const KIND = new Map(
    Object.entries(WORDS).flatMap(([kind, words]) => words.split(/\s+/).map((word) => [word, kind])),
  );
  const A_TYPE = /^(u?int\d+(_fast|_least)?_t|u?(char|short|int|long|longlong)[1-4]|(float|double)[1-4])$/;
  // In the order in which they are tried: comments and texts hide what stands in them.
  const TOKEN = new RegExp(
    [
      String.raw`(?<comment>//[^\n]*|/\*[^]*?(?:\*/|(?![^])))`,
      String.raw`(?<meta>^[ \t]*#(?:\\\n|[^\n/]|/(?![/*]))*)`,
      String.raw`(?<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])+'?)`,
      String.raw`(?<number>(?:0[xX][\da-fA-F']+|(?:\d[\d']*\.?[\d']*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*)`,
      String.raw`(?<call>[A-Za-z_]\w*(?=\s*(?:<[\w\s,:*]*>)?\())`,
      String.raw`(?<plain>[A-Za-z_]\w*|[^\s\w"'/]+|/)`,
    ].join("|"),
    "gm",
  );
  const QUOTES = /^[rR]?("""|''')/;
  const IS_CUDA = /__global__|__device__|\bthreadIdx\b|\bblockIdx\b|^\s*#\s*include\s*</m;

  /** The parts of CUDA C++ text that have a colour: [start, end, kind], in order. */
  function tokens(text) {
    const found = [];
    for (const match of text.matchAll(TOKEN)) {
      const word = match[0];
      const [group] = Object.entries(match.groups).find(([, text]) => text !== undefined);
      const kind = KIND.get(word) ?? (A_TYPE.test(word) ? "type" : group);
      found.push([match.index, match.index + word.length, kind]);
    }
    return found;
  }

  // The line that is named, and the text that stands there: a line that was mended is no longer meant.
  // Messages are wrapped where they please, but lines of code that a compiler repeats are indented.
  const SAID = [
    /\bline\s+(\d+)\s+`([^`]{1,300})`/g,
    /\.cu\((\d+)\): error: [^\n]*(?:\n\S[^\n]*)*\n\s+(\S[^\n]*)/g,
  ];
  const bare = (text) => text.trim().replaceAll(/\s+/g, " ");
  const OUTPUTS = ".jp-OutputArea-output:is(.jp-RenderedText, .jp-RenderedHTMLCommon)";
  const VIEWS = ".gpulab-view, .jupyter-widgets"; // they change all the time, and hold no message
  const MOST_TEXT = 100_000; // a longer output is no message

  /** What outputs on the page say of lines: "number text". */
  function named() {
    const found = new Set();
    for (const output of document.querySelectorAll(OUTPUTS)) {
      const text = output.textContent;
      if (text.length > MOST_TEXT) continue;
      for (const pattern of SAID) {
        for (const [, line, code] of text.matchAll(pattern)) found.add(`${line} ${bare(code)}`);
      }
      for (const code of output.querySelectorAll("code")) {
        const line = /\bline (\d+)\s*$/.exec(code.previousSibling?.textContent ?? "");
        if (line) found.add(`${line[1]} ${bare(code.textContent)}`);
      }
    }
    return found;
  }

  /** Calls back, a moment later, when outputs have come or gone. */
  function whenOutputsChange(callback) {
    let waiting = 0;
    const look = () => {
      waiting = 0;
      callback();
    };
    const observer = new MutationObserver((changes) => {
      const concerns = changes.some(
        ({ target }) => target.closest?.(".jp-OutputArea") && !target.closest(VIEWS),
      );
      if (concerns && !waiting) waiting = setTimeout(look, 300);
    });
    observer.observe(document.body, { childList: true, subtree: true });
  }

  /** Extensions of the editor that paint and mark. */
  function painter({ Decoration, ViewPlugin }, { RangeSetBuilder, StateEffect }, { syntaxTree }) {
    const marks = Object.fromEntries(
      Object.keys(STYLE).map((kind) => [kind, Decoration.mark({ class: `${NAME}-${kind}` })]),
    );
    // Whichever of the two colours lies inside: ours holds.
    const rules = Object.entries(STYLE).flatMap(([kind, style]) => {
      const important = style.replaceAll(/(;|$)/g, " !important$1");
      return [`.${NAME}-${kind}, .${NAME}-${kind} span:not(.cm-matchingBracket) { ${important} }`];
    });
    const sheet = document.createElement("style");
    rules.push(`.${NAME}-fault { background: var(--jp-error-color3, #ffcdd2); box-shadow: inset 3px 0 0
      var(--jp-error-color1, #d32f2f) }
      body[data-jp-theme-light="false"] .${NAME}-fault { background: #5c1f1f; }`);
    // Stored pictures of figures, also before a cell runs; views bring the same rule (parts/palette.py).
    rules.push(`body[data-jp-theme-light="false"] .jp-RenderedImage img.jp-needs-light-background
      { filter: invert(0.87) hue-rotate(180deg); }`);
    sheet.textContent = rules.join("\n");
    document.head.append(sheet);

    const fault = Decoration.line({
      class: `${NAME}-fault`,
      attributes: { title: "An error or a check names this line." },
    });
    const looked = StateEffect.define();
    const views = new Set();
    let faults = new Set();

    /** The strings of CUDA C++ on the screen: [where the text begins, the text]. */
    function sources(view) {
      const found = [];
      let done = -1; // a string that two visible ranges share counts once
      for (const { from, to } of view.visibleRanges) {
        syntaxTree(view.state).iterate({
          from,
          to,
          enter: (node) => {
            if (node.name !== "String" || node.from <= done) return;
            const text = view.state.sliceDoc(node.from, node.to);
            const quotes = QUOTES.exec(text);
            if (!quotes || !IS_CUDA.test(text)) return;
            done = node.from;
            const first = quotes[0].length;
            const last = text.length - (text.endsWith(quotes[1]) ? 3 : 0);
            found.push([node.from + first, text.slice(first, Math.max(first, last))]);
          },
        });
      }
      return found;
    }

    function painted(view) {
      const builder = new RangeSetBuilder();
      for (const [at, text] of sources(view)) {
        for (const [start, end, kind] of tokens(text)) builder.add(at + start, at + end, marks[kind]);
      }
      return builder.finish();
    }

    function marked(view) {
      const builder = new RangeSetBuilder();
      for (const [at, text] of faults.size ? sources(view) : []) {
        let start = at;
        text.split("\n").forEach((line, index) => {
          const from = view.state.doc.lineAt(start).from;
          if (faults.has(`${index + 1} ${bare(line)}`)) builder.add(from, from, fault);
          start += line.length + 1;
        });
      }
      return builder.finish();
    }

    whenOutputsChange(() => {
      const now = named();
      if (now.size === faults.size && [...now].every((each) => faults.has(each))) return;
      faults = now;
      for (const view of views) view.dispatch({ effects: looked.of(null) });
    });

    const plugin = (decorate) =>
      ViewPlugin.fromClass(
        class {
          constructor(view) {
            views.add((this.view = view));
            this.decorations = decorate(view);
          }
          update({ view, state, startState, docChanged, viewportChanged, transactions }) {
            const told = transactions.some(({ effects }) => effects.some((effect) => effect.is(looked)));
            if (told || docChanged || viewportChanged || syntaxTree(state) !== syntaxTree(startState)) {
              this.decorations = decorate(view);
            }
          }
          destroy() {
            views.delete(this.view);
          }
        },
        { decorations: (made) => made.decorations },
      );
    return [plugin(painted), plugin(marked)];
  }

  const WIDGET = "application/vnd.jupyter.widget-view+json";
  const OTHER_TYPES = ["text/html", "image/png", "text/plain"];

  /** Show another type of the same output where the notebook has a widget's reference but not its state.
   *
   * JupyterLab stores the widgets of the current kernel only, so cells of earlier days lose theirs.
   */
  function replaceMissingWidgets(rendermime) {
    if (!rendermime.mimeTypes.includes(WIDGET)) return;
    const example = rendermime.createRenderer(WIDGET);
    const prototype = Object.getPrototypeOf(example);
    example.dispose();
    const { renderModel } = prototype;
    prototype.renderModel = async function (model) {
      await renderModel.call(this, model);
      if (!this.node?.textContent.startsWith("Error displaying widget")) return;
      const type = OTHER_TYPES.find((name) => model.data[name] !== undefined);
      if (!type) return;
      const other = rendermime.createRenderer(type);
      await other.renderModel(model);
      this.node.textContent = "";
      this.removeClass("jupyter-widgets");
      this.addWidget(other);
      if (type === "text/plain") this.addClass(`${NAME}-missing`); // a view, whose picture is the next output
    };
    const sheet = document.createElement("style");
    sheet.textContent = `.jp-OutputArea-child:has(> .${NAME}-missing):has(+ .jp-OutputArea-child img[width="900"])
      { display: none; }
      .jp-OutputArea-child:has(> .jp-RenderedText > pre:empty) { display: none; }`; // the progress of a cell that has ended
    document.head.append(sheet);
  }

  /** Give pictures the alternative text of their output's metadata, which JupyterLab ignores. */
  function describePictures(rendermime) {
    const example = rendermime.createRenderer("image/png");
    const prototype = Object.getPrototypeOf(example);
    example.dispose();
    const { render } = prototype;
    prototype.render = async function (model) {
      await render.call(this, model);
      const { alt } = model.metadata["image/png"] ?? {};
      const image = this.node.querySelector("img");
      if (alt && image) image.alt = alt;
    };
  }

  /** Define a term where the pointer or the focus is on a link to it, from the glossary that the link leads to. */
  function defineTerms(contents) {
    const glossaries = new Map();
    const read = async (path) => {
      const { content } = await contents.get(path);
      const entries = content.cells.map(({ source }) => /^## (.+)\n+([^]+)$/.exec([source].flat().join("")) ?? []);
      const plain = (text = "") => text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll(/[`*]/g, "").trim();
      return new Map(entries.map(([, term, text]) => [term?.replaceAll(" ", "-"), plain(text)]));
    };
    const define = async ({ target }) => {
      const link = target.closest?.('.jp-RenderedMarkdown a[href*="glossary.ipynb"]');
      if (!link || link.title) return;
      const { pathname, hash } = new URL(link.href);
      const path = decodeURIComponent(pathname.split("/files/")[1] ?? "");
      if (!path) return;
      if (!glossaries.has(path)) glossaries.set(path, read(path));
      link.title = (await glossaries.get(path)).get(decodeURIComponent(hash.slice(1))) ?? "";
    };
    for (const event of ["pointerover", "focusin"]) document.addEventListener(event, define);
  }

  /** Whether Python code defines a name: by an assignment, an import, a function, a class, a loop or our magics. */
  function defines(code, name) {
    const forms = [
      String.raw`(?:[\w.*]+\s*,\s*)*\*?${name}\s*(?:,[\w.*,\s]*)?(?::[^=\n]+)?=(?!=)`,
      String.raw`(?:async\s+)?(?:def|class)\s+${name}\b`,
      String.raw`(?:from\s.+\s)?import\s(?:.*[\s,(])?${name}\b`,
      String.raw`for\s[^:\n]*\b${name}\b.*\sin\s`,
      String.raw`with\s.*\sas\s+${name}\b`,
      String.raw`%%?gpu_\w+\s.*\b${name}\b`,
    ];
    return new RegExp(String.raw`^[ \t]*(?:${forms.join("|")})`, "m").test(code);
  }

  /** Say below a NameError which command runs the cells above, if one of them defines the name. */
  function adviseOnNames({ NotebookActions }) {
    NotebookActions.executed.connect((_, { notebook, cell, error }) => {
      const [, name] = /^name '(\w+)' is not defined/.exec(error?.errorValue ?? "") ?? [];
      if (error?.errorName !== "NameError" || !name) return;
      const above = notebook.widgets.slice(0, notebook.widgets.indexOf(cell));
      if (!above.some(({ model }) => model.type === "code" && defines(model.sharedModel.getSource(), name))) return;
      const text = `A cell above defines '${name}'. Choose "Run > Run All Above Selected Cell".\n`;
      cell.outputArea.model.add({ output_type: "stream", name: "stderr", text });
    });
  }

  let sharing = {};

  /** A module that JupyterLab shares with its extensions. */
  async function shared(name) {
    const versions = Object.values(sharing[name] ?? {});
    const chosen = versions.find((version) => version.loaded) ?? versions[0];
    if (!chosen) throw new Error(`${NAME}: this JupyterLab shares no ${name}; CUDA C++ stays without colour.`);
    return (await chosen.get())();
  }

  const container = {
    init: (scope) => {
      sharing = scope;
    },
    get: async () => {
      const names = ["@codemirror/view", "@codemirror/state", "@codemirror/language", "@jupyterlab/codemirror"];
      const [view, state, language, jupyter] = await Promise.all(names.map(shared));
      const { EditorExtensionRegistry, IEditorExtensionRegistry } = jupyter;
      const colours = {
        id: `${NAME}:plugin`,
        description: "Paints CUDA C++ in strings of Python.",
        autoStart: true,
        requires: [IEditorExtensionRegistry],
        activate: (_, registry) => {
          const extension = painter(view, state, language);
          const factory = () => EditorExtensionRegistry.createImmutableExtension(extension);
          registry.addExtension(Object.freeze({ name: NAME, factory }));
        },
      };
      const { IRenderMimeRegistry } = await shared("@jupyterlab/rendermime");
      const notebook = await shared("@jupyterlab/notebook");
      const outputs = {
        id: `${NAME}:outputs`,
        description: "Shows pictures for widgets that are not stored, descriptions, and advice after a restart.",
        autoStart: true,
        requires: [IRenderMimeRegistry],
        activate: ({ started, serviceManager }, rendermime) => {
          started.then(() => replaceMissingWidgets(rendermime)); // once the widgets' own extension is there
          describePictures(rendermime);
          defineTerms(serviceManager.contents);
          adviseOnNames(notebook);
        },
      };
      return () => ({ __esModule: true, default: [colours, outputs] });
    },
  };
  (window._JUPYTERLAB ??= {})[NAME] = container;
})();
