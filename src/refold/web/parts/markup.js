// A tree of nodes as an element of its own.
import { draw } from "/ui/parts/tree.js";

export default {
  props: { tree: { type: Array, default: () => [] } },
  render() {
    return Vue.h("div", { class: "prose" }, draw(this.tree));
  },
};
