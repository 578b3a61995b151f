// A conversation of any length: only the rows near the viewport are elements. Rows come from the server in pages; their
// heights are guessed until they are drawn, and the row a reader looks at never moves while the others find their size.
// rows.js draws the rows.
import { drawing } from "/ui/parts/rows.js";

const PAGE = 30;
const MARGIN_PX = 900;
const GUESS_PX = 132;
const NEAR_END_PX = 48;
const FAR_FROM_END_PX = 600;
// Space above a row that is jumped to; for the first original of a card, enough to see the end of the card.
const GAP_PX = 16;
const CARD_END_PX = 150;
const h = (...args) => Vue.h(...args);

export default {
  props: {
    words: { type: Object, required: true },
    count: { type: Number, default: 0 },
    version: { type: Number, default: 0 },
    look: { type: String, default: "sees" },
    target: { type: Number, default: -1 },
    language: { type: String, default: "en" },
    given: { type: Object, default: null },
    // A view of the past: nothing in it can be changed.
    frozen: { type: Boolean, default: false },
    // Only what the model reads is shown of a record.
    onlySent: { type: Boolean, default: false },
    // Words that are marked wherever they are.
    marked: { type: Array, default: () => [] },
  },
  emits: ["need", "toggle", "act", "more", "place"],
  data() {
    return { first: 0, last: 0, tick: 0, away: false };
  },
  created() {
    this.rows = new Array(this.count);
    this.sizes = new Array(this.count).fill(0);
    const given = Vue.toRaw(this.given);
    given?.rows.forEach((row, at) => (this.rows[given.start + at] = Vue.markRaw(Vue.toRaw(row))));
    this.state = {};
    this.asked = new Set();
    this.current = this.version;
    this.size = this.count;
    this.isPinned = this.target < 0;
    this.wanted = this.target;
    this.switched = "";
    const settings = { hour: "2-digit", minute: "2-digit", hour12: false };
    this.clock = new Intl.DateTimeFormat(this.language, settings);
    this.calendar = new Intl.DateTimeFormat(this.language, { day: "numeric", month: "short", ...settings });
    this.figures = new Intl.NumberFormat(this.language);
  },
  mounted() {
    this.watcher = new ResizeObserver(() => this.settle());
    this.watcher.observe(this.$refs.scroll);
    this.look_at(this.wanted >= 0 ? this.wanted : this.size - 1, this.wanted >= 0);
    if (this.marked.length) this.mark(this.marked);
  },
  beforeUnmount() {
    this.watcher.disconnect();
    this.marker?.disconnect();
  },
  beforeUpdate() {
    this.held = this.hold();
  },
  updated() {
    this.settle();
  },
  methods: {
    // What the server calls.
    put(version, start, rows) {
      if (version !== this.current) return;
      rows.forEach((row, at) => (this.rows[start + at] = row));
      this.asked.delete(start);
      this.tick++;
      this.pursue();
    },
    splice(version, start, removed, added) {
      const card = this.rows.findIndex((row) => row && row.key === this.switched);
      const empty = new Array(added);
      this.rows.splice(start, removed, ...empty);
      this.sizes.splice(start, removed, ...empty.fill(0));
      this.rows.length = this.sizes.length = this.size = this.size - removed + added;
      this.current = version;
      this.asked.clear();
      // A card may be taller than the window: its first original comes into view, below the end of the card.
      if (card >= 0) this.look_at(added > removed ? card + 1 : card, true, added > removed ? CARD_END_PX : GAP_PX);
      else this.place();
      this.switched = "";
      this.tick++;
    },
    replace(version, count, target) {
      this.rows = new Array(count);
      this.sizes = new Array(count).fill(0);
      this.size = count;
      this.current = version;
      this.asked.clear();
      this.look_at(target >= 0 ? target : count - 1, target >= 0);
      this.tick++;
    },
    append_text(key, at, original, text, next, total) {
      const state = this.of(key, at);
      const name = original ? "whole" : "rest";
      state[name] = { text: (state[name]?.text ?? "") + text, next, total };
      state.isLoading = false;
      this.tick++;
      this.pursue();
    },
    // Opens the part of a row that has some words, as far as they are, marks them and brings them into view.
    reveal(goal) {
      const state = this.of(goal.key, goal.at);
      state[goal.original ? "isWholeOpen" : "isOpen"] = true;
      this.isPinned = false;
      this.goal = goal;
      this.mark(goal.words);
      this.tick++;
      this.pursue();
    },
    pursue() {
      const goal = this.goal;
      const piece = goal && this.rows.find((row) => row?.key === goal.key)?.pieces?.find((one) => one.at === goal.at);
      if (!piece) return;
      const state = this.of(goal.key, goal.at);
      const got = goal.original ? state.whole : state.rest;
      const shown = got ? got.next : goal.original ? 0 : piece.limit;
      const total = got ? got.total : goal.original ? Infinity : piece.total;
      if (shown <= goal.offset && shown < total) {
        if (!state.isLoading) this.$emit("more", { key: goal.key, at: goal.at, offset: shown, original: goal.original });
        state.isLoading = true;
        return;
      }
      this.goal = null;
      // Once the row has found its place.
      setTimeout(() => this.show_mark(goal.key), 350);
    },
    show_mark(key) {
      const row = this.$refs.scroll?.querySelector(`[data-key="${CSS.escape(key)}"]`);
      const range = row && [...(CSS.highlights?.get("recall") ?? [])].find((one) => row.contains(one.startContainer));
      if (!range) return;
      const live = document.createRange();
      live.setStart(range.startContainer, range.startOffset);
      live.setEnd(range.endContainer, range.endOffset);
      for (let box = range.startContainer.parentElement; box; box = box.parentElement) {
        if (box.scrollHeight > box.clientHeight + 4 && getComputedStyle(box).overflowY !== "visible") {
          const [place, frame] = [live.getBoundingClientRect(), box.getBoundingClientRect()];
          if (place.top < frame.top || place.bottom > frame.bottom) box.scrollTop += place.top - frame.top - frame.height / 3;
        }
        if (box === this.$refs.scroll) break;
      }
    },
    // Marks words without changing the nodes: they are drawn, and drawn again, by Vue.
    mark(words) {
      const wanted = words.map((word) => word.toLowerCase()).filter(Boolean);
      if (!CSS.highlights) return;
      const draw = () => {
        const ranges = [];
        const nodes = document.createTreeWalker(this.$refs.scroll, NodeFilter.SHOW_TEXT);
        for (let node = nodes.nextNode(); node && ranges.length < 500; node = nodes.nextNode()) {
          const text = node.data.toLowerCase();
          for (const word of wanted) {
            for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
              if (at + word.length <= node.length) ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + word.length }));
            }
          }
        }
        CSS.highlights.set("recall", new Highlight(...ranges));
      };
      this.marker?.disconnect();
      this.marker = new MutationObserver(draw);
      this.marker.observe(this.$refs.scroll, { childList: true, subtree: true, characterData: true });
      draw();
    },
    jump(index) {
      this.look_at(index, true);
    },
    to_end() {
      this.look_at(this.size - 1, false);
    },

    // Where things are.
    guess() {
      let sum = 0;
      let known = 0;
      for (const size of this.sizes) {
        if (size) {
          sum += size;
          known++;
        }
      }
      return known > 3 ? sum / known : GUESS_PX;
    },
    offset(index) {
      const guess = this.guess();
      let sum = 0;
      for (let at = 0; at < index; at++) sum += this.sizes[at] || guess;
      return sum;
    },
    look_at(index, isTarget, gap = GAP_PX) {
      this.gap = gap;
      index = Math.max(0, Math.min(index, this.size - 1));
      this.isPinned = !isTarget;
      this.wanted = isTarget && this.size ? index : -1;
      this.first = Math.max(0, index - 14);
      this.last = Math.min(this.size, index + 15);
      this.ask();
      this.$nextTick(() => this.settle());
    },
    place() {
      const box = this.$refs.scroll;
      if (!box) return;
      // The rows around a wanted one stay until it has arrived: guessed heights would lead away from it.
      if (this.wanted >= 0) return this.ask();
      const guess = this.guess();
      const from = box.scrollTop - MARGIN_PX;
      const to = box.scrollTop + box.clientHeight + MARGIN_PX;
      let sum = 0;
      let first = -1;
      let last = this.size;
      for (let at = 0; at < this.size; at++) {
        const size = this.sizes[at] || guess;
        if (first < 0 && sum + size >= from) first = at;
        sum += size;
        if (sum > to) {
          last = at + 1;
          break;
        }
      }
      if (first < 0) first = Math.max(0, this.size - 1);
      if (first !== this.first || last !== this.last) {
        this.first = first;
        this.last = last;
      }
      this.ask();
    },
    ask() {
      for (let page = Math.floor(this.first / PAGE); page * PAGE < this.last; page++) {
        const start = page * PAGE;
        const stop = Math.min(this.size, start + PAGE);
        let from = -1;
        for (let at = start; at < stop; at++) {
          if (this.rows[at] === undefined) {
            from = at;
            break;
          }
        }
        if (from >= 0 && !this.asked.has(from)) {
          this.asked.add(from);
          this.$emit("need", { version: this.current, start: from, stop });
        }
      }
    },
    // The row at the top of the viewport, and where it is, before the document changes.
    hold() {
      const box = this.$refs.scroll;
      if (!box || this.isPinned || this.wanted >= 0) return null;
      const top = box.getBoundingClientRect().top;
      for (const element of box.querySelectorAll("[data-key]")) {
        const place = element.getBoundingClientRect();
        if (place.bottom > top) return { key: element.dataset.key, at: place.top };
      }
      return null;
    },
    settle() {
      const box = this.$refs.scroll;
      if (!box) return;
      for (const element of box.querySelectorAll("[data-at]")) {
        const at = Number(element.dataset.at);
        if (this.rows[at] !== undefined) this.sizes[at] = element.offsetHeight;
      }
      this.pad();
      if (this.isPinned) {
        box.scrollTop = box.scrollHeight;
      } else if (this.wanted >= 0) {
        const element = box.querySelector(`[data-at="${this.wanted}"]`);
        if (element) {
          box.scrollTop += element.getBoundingClientRect().top - box.getBoundingClientRect().top - this.gap;
          if (this.rows[this.wanted] !== undefined) {
            element.classList.add("found");
            this.wanted = -1;
          }
        }
      } else if (this.held) {
        const element = box.querySelector(`[data-key="${CSS.escape(this.held.key)}"]`);
        if (element) box.scrollTop += element.getBoundingClientRect().top - this.held.at;
      }
      this.held = null;
      this.note();
      this.place();
    },
    // Space for the rows that are not drawn. Set here and not by Vue, so that finding a size draws nothing again.
    pad() {
      const guess = this.guess();
      let below = 0;
      for (let at = this.last; at < this.size; at++) below += this.sizes[at] || guess;
      this.$refs.above.style.height = `${this.offset(this.first)}px`;
      this.$refs.below.style.height = `${below}px`;
    },
    note() {
      const box = this.$refs.scroll;
      this.seen = { top: box.scrollTop, height: box.scrollHeight, room: box.clientHeight };
      this.away = box.scrollHeight - box.scrollTop - box.clientHeight > FAR_FROM_END_PX;
    },
    scrolled() {
      const box = this.$refs.scroll;
      const gap = box.scrollHeight - box.scrollTop - box.clientHeight;
      // Only a reader leaves the end: rows that find their size move things too, but change a height as they do.
      const isStill = box.scrollHeight === this.seen?.height && box.clientHeight === this.seen?.room;
      if (gap < NEAR_END_PX && this.last === this.size) this.isPinned = true;
      else if (isStill && box.scrollTop < this.seen.top - 4) this.isPinned = false;
      this.note();
      clearTimeout(this.telling);
      this.telling = setTimeout(() => this.tell_place(), 250);
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.place();
      });
    },

    // The server knows where a reader is, so that another way of looking begins at the same place.
    tell_place() {
      const held = this.isPinned ? null : this.hold();
      if (this.$refs.scroll) this.$emit("place", { key: held?.key ?? "" });
    },
    ...drawing,
  },
  render() {
    this.tick;
    const rows = [];
    for (let at = this.first; at < Math.min(this.last, this.size); at++) rows.push(this.draw_row(at));
    return h("div", { class: `talk look-${this.look}` }, [
      h(
        "div",
        {
          ref: "scroll",
          class: "talk-scroll",
          tabindex: "0",
          role: "list",
          "aria-label": this.say("conversation"),
          onScrollPassive: this.scrolled,
        },
        [h("div", { ref: "above" }), h("div", { class: "talk-rows" }, rows), h("div", { ref: "below" })],
      ),
      this.away
        ? h("div", { class: "to-end", title: this.say("to_end") }, [
            this.press(this.say("to_end"), "end", () => this.to_end(), ""),
          ])
        : null,
    ]);
  },
};
