import { Frame } from "./frame.js";
import { showScene } from "./boxes.js";

// A view that consists of its scene only.

function render(context) {
  const frame = new Frame(context, context.model.get("view_name"));
  showScene(frame);
  return frame.ending();
}

export default { render };
