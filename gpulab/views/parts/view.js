import { Frame } from "./frame.js";
import { showScene } from "./boxes.js";

// A view that is its scene and nothing else.

function render(context) {
  const frame = new Frame(context, context.model.get("view_name"));
  showScene(frame);
  return frame.ending();
}

export default { render };
