// How the rows of a conversation are drawn: methods of the component in conversation.js.
// Every text is a text node; Markdown comes as nodes that tree.js draws.
import { draw } from "/ui/parts/tree.js";

const h = (...args) => Vue.h(...args);

export const drawing = {
  // Small things.
  of(key, at) {
    return (this.state[`${key}#${at}`] ??= {});
  },
  say(key, values = {}) {
    return (this.words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  },
  // A name that a plugin or an older ledger brought has no words of ours: it is shown as it is.
  name_of(part, name) {
    return this.words[`${part}_${name}`] ?? name;
  },
  number(value) {
    return this.figures.format(value);
  },
  time(seconds) {
    if (!seconds) return "";
    const when = new Date(seconds * 1000);
    return (Date.now() - when > 72e6 ? this.calendar : this.clock).format(when);
  },
  press(label, icon, act, kind = "quiet small") {
    const inside = [icon ? h("i", { class: `icon icon-${icon}`, "aria-hidden": "true" }) : null, h("span", label)];
    return h("button", { class: `button ${kind}`, type: "button", onClick: act }, inside);
  },
  // A button that opens and closes something: its chevron turns.
  disclose(label, isOpen, act, kind) {
    const chevron = h("i", { class: "icon icon-open turnable", "aria-hidden": "true" });
    const settings = { class: `button ${kind}`, type: "button", "aria-expanded": String(isOpen), onClick: act };
    return h("button", settings, [chevron, h("span", label)]);
  },
  flip(state, name) {
    state[name] = !state[name];
    this.isPinned = false;
    this.tick++;
  },

  // Rows.
  draw_row(at) {
    const row = this.rows[at];
    if (row === undefined) {
      const height = `${Math.round(this.sizes[at] || this.guess())}px`;
      return h("div", { key: `empty-${at}`, class: "turn waiting", "data-at": at, style: { height } });
    }
    const inside =
      row.kind === "fold" ? this.draw_fold(row) : row.kind === "undone" ? this.draw_undone(row) : this.draw_message(row);
    return h("div", { key: row.key, class: "turn-place", "data-at": at, "data-key": row.key, role: "listitem" }, [inside]);
  },
  draw_message(row) {
    const kind = ["turn", `by-${row.role}`, row.inside ? "inside" : "", row.gone ? "gone" : "", row.behind ? "behind" : ""];
    const facts = this.draw_figures(row);
    // A result needs no headline of its own: its line says what it is.
    const isBare = row.role === "tool" && !row.behind && !row.gone && !row.forgotten;
    if (isBare && row.pieces.length === 1 && row.pieces[0].kind === "result") {
      return h("article", { class: [...kind, "bare"] }, [this.draw_piece(row, row.pieces[0], facts)]);
    }
    const head = h("header", { class: "turn-head" }, [
      h("span", { class: "speaker" }, this.name_of("by", row.role)),
      row.pinned ? h("span", { class: "chip accent" }, this.say("pinned")) : null,
      row.behind ? h("span", { class: "chip" }, this.say("folded")) : null,
      row.gone ? h("span", { class: "chip bad" }, this.say("hidden")) : null,
      row.forgotten ? h("span", { class: "chip bad" }, this.say("forgotten")) : null,
      facts,
    ]);
    return h("article", { class: kind }, [head, ...row.pieces.map((piece) => this.draw_piece(row, piece))]);
  },
  draw_figures(row) {
    return h("span", { class: "turn-facts num" }, [
      h("span", this.say("tokens", { tokens: this.number(row.tokens) })),
      h("span", this.time(row.time)),
      h("span", { class: "mono handle", title: this.say("handle_hint") }, row.handle),
      this.draw_pin(row),
    ]);
  },
  draw_pin(row) {
    if (this.frozen || !row.handle) return null;
    const label = this.say(row.pinned ? "unpin" : "pin");
    const act = (event) => {
      event.stopPropagation();
      this.$emit("act", { what: row.pinned ? "unpin" : "pin", id: row.handle });
    };
    const settings = { class: `pin ${row.pinned ? "on" : ""}`, type: "button", title: label, "aria-label": label, onClick: act };
    return h("button", settings, [h("i", { class: "icon icon-pin", "aria-hidden": "true" })]);
  },
  // What recall added below a person's words: one line, open to the passages.
  draw_recalled(row, piece, state) {
    const given = piece.recalled;
    const isOpen = Boolean(state.isRecallOpen);
    const label = this.say(given.count === 1 ? "recalled_one" : "recalled", { count: this.number(given.count) });
    const head = h(
      "button",
      { class: "chip accent recalled", type: "button", "aria-expanded": String(isOpen), onClick: () => this.flip(state, "isRecallOpen") },
      [
        h("i", { class: "icon icon-open turnable", "aria-hidden": "true" }),
        h("span", label),
        h("span", { class: "num" }, this.say("tokens", { tokens: this.number(given.tokens) })),
      ],
    );
    return h("div", { class: `recalled-part ${isOpen ? "open" : ""}` }, [
      head,
      isOpen ? h("pre", { class: "output" }, given.text) : null,
    ]);
  },
  draw_piece(row, piece, facts = null) {
    const state = this.of(row.key, piece.at);
    if (piece.is_changed) return this.draw_changed(row, piece, state, facts);
    const parts = piece.mark ? [this.draw_mark(piece.mark)] : [];
    if (piece.shape === "words") {
      parts.push(h("div", { class: "prose" }, draw(piece.tree)), ...this.draw_rest(row, piece, state, false));
      if (piece.recalled) parts.push(this.draw_recalled(row, piece, state));
      return h("div", { class: "piece" }, parts);
    }
    if (piece.shape === "note") return h("p", { class: "piece faint" }, this.say("media", { name: piece.text }));
    parts.push(this.draw_block(row, piece, state, facts));
    return h("div", { class: "piece" }, parts);
  },
  // A call, a result or thinking: closed to a line, open to its text.
  draw_block(row, piece, state, facts) {
    const isOpen = state.isOpen ?? (piece.kind === "result" && piece.total < 600);
    const lines = piece.text.trimStart().split("\n");
    const first = piece.kind === "call" ? this.name_call(piece) : lines[0].slice(0, 160);
    const label = piece.kind === "call" && piece.name ? piece.name : this.name_of("kind", piece.kind);
    const toggle = () => {
      state.isOpen = !isOpen;
      this.isPinned = false;
      this.tick++;
    };
    const head = h("button", { class: "block-head", type: "button", "aria-expanded": String(isOpen), onClick: toggle }, [
      h("i", { class: "icon icon-open turnable", "aria-hidden": "true" }),
      h("span", { class: `block-name${piece.is_error ? " bad" : ""}` }, label),
      isOpen ? null : h("span", { class: "cut mono soft" }, first),
      facts ? null : h("span", { class: "faint num" }, this.say("chars", { chars: this.number(piece.total) })),
    ]);
    const body = isOpen
      ? [h("pre", { class: "output" }, this.pretty(piece)), ...this.draw_rest(row, piece, state, false)]
      : [];
    return h("div", { class: `block ${isOpen ? "open" : ""}` }, [h("div", { class: "block-line" }, [head, facts]), ...body]);
  },
  name_call(piece) {
    try {
      return Object.entries(JSON.parse(piece.text))
        .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
        .join("  ")
        .slice(0, 200);
    } catch {
      return piece.text.slice(0, 200);
    }
  },
  pretty(piece) {
    if (piece.kind !== "call" || piece.total > piece.limit) return piece.text;
    try {
      return JSON.stringify(JSON.parse(piece.text), null, 2);
    } catch {
      return piece.text;
    }
  },
  // More of a long text, page by page.
  draw_rest(row, piece, state, original, start = original ? 0 : piece.limit) {
    const got = original ? state.whole : state.rest;
    const shown = got ? got.next : Math.min(start, piece.total);
    const total = got ? got.total : piece.total;
    const parts = got ? [h("pre", { class: "output" }, got.text)] : [];
    if (shown < total) {
      const act = () => {
        if (state.isLoading) return;
        state.isLoading = true;
        this.isPinned = false;
        this.$emit("more", { key: row.key, at: piece.at, offset: shown, original });
      };
      const label = this.say("show_more", { shown: this.number(shown), total: this.number(total) });
      parts.push(h("div", { class: "rest" }, [this.press(label, "", act)]));
    }
    return parts;
  },
  draw_mark(mark, facts = null, piece = null) {
    const label = this.name_of("stage", mark.stage);
    const figures = this.say("change", { before: this.number(mark.before), after: this.number(mark.after) });
    return h("div", { class: "mark" }, [
      piece ? h("span", { class: "block-name" }, piece.name || this.name_of("kind", piece.kind)) : null,
      h("span", { class: "chip accent" }, label),
      mark.before ? h("span", { class: "num" }, figures) : null,
      h("span", { class: "soft" }, mark.reason),
      facts,
    ]);
  },
  // A part the model sees something else of: the placeholder, and the original one press away.
  draw_changed(row, piece, state, facts) {
    const parts = [this.draw_mark(piece.mark, facts, piece)];
    if (piece.was) {
      parts.push(h("pre", { class: "output was" }, piece.was.text));
      parts.push(...this.draw_rest(row, { ...piece, ...piece.was }, state, true, piece.was.limit));
      parts.push(
        piece.text
          ? h("pre", { class: "output now" }, piece.text)
          : h("p", { class: "faint" }, this.say("left_out")),
      );
      return h("div", { class: "piece changed" }, parts);
    }
    parts.push(
      piece.text ? h("pre", { class: "output stub" }, piece.text) : h("p", { class: "faint" }, this.say("left_out")),
      ...this.draw_rest(row, piece, state, false),
    );
    const open = () => {
      if (!state.whole && !state.isWholeOpen) {
        this.$emit("more", { key: row.key, at: piece.at, offset: 0, original: true });
      }
      this.flip(state, "isWholeOpen");
    };
    const label = this.say(state.isWholeOpen ? "close_full" : "open_full");
    parts.push(h("div", { class: "rest" }, [this.press(label, state.isWholeOpen ? "close" : "unfold", open)]));
    if (state.isWholeOpen) {
      const more = this.draw_rest(row, { ...piece, total: state.whole?.total ?? 0 }, state, true);
      parts.push(h("div", { class: "whole" }, more));
    }
    return h("div", { class: "piece changed" }, parts);
  },

  // Folds.
  draw_fold(row) {
    const state = this.of(row.key, "fold");
    const act = (name) => () => {
      this.isPinned = false;
      this.$emit("act", { what: name, id: row.id });
    };
    const toggle = (event) => {
      this.isPinned = false;
      const place = event.currentTarget.closest("[data-at]").getBoundingClientRect();
      const box = this.$refs.scroll.getBoundingClientRect();
      // Where the card and what it opens are in view, nothing moves.
      const isInView = place.top >= box.top && place.bottom < box.top + box.height / 2;
      this.switched = isInView ? "" : row.key;
      this.$emit("toggle", { id: row.id });
    };
    const count = this.say(row.count === 1 ? "one_message" : "messages", { count: this.number(row.count) });
    const times = row.after ? row.before / row.after : 0;
    const figures = h("p", { class: "fold-figures num" }, [
      h("i", { class: "icon icon-fold", "aria-hidden": "true" }),
      h("strong", count),
      h("span", { class: "fold-dot" }, "·"),
      h("span", this.say("change", { before: this.number(row.before), after: this.number(row.after) })),
      times >= 1.5 ? h("strong", `(${times >= 10 ? Math.round(times) : times.toFixed(1)}×)`) : null,
    ]);
    const flip = (name) => () => this.flip(state, name);
    const isLong = row.summary.length > 4;
    // A closed record is a picture of its first lines: nothing in it can be reached.
    const isShort = isLong && !state.isWide;
    const summary = state.isExact
      ? h("pre", { class: "output" }, row.text)
      : h("div", { class: ["prose", "summary", isShort ? "short" : ""], inert: isShort || null }, this.draw_lines(row, isShort));
    const buttons = [
      this.disclose(this.say(row.is_open ? "hide_originals" : "show_originals"), row.is_open, toggle, "small"),
      this.frozen ? null : this.press(this.say("unfold"), "undo", act("unfold"), "small"),
    ];
    return h("section", { class: `fold ${row.is_open ? "is-open" : ""}`, "aria-label": this.say("fold_label") }, [
      h("header", { class: "fold-head" }, [
        figures,
        h("p", { class: "faint fold-why" }, [h("span", { class: "num" }, this.time(row.time)), h("span", row.reason)]),
      ]),
      summary,
      h("div", { class: "row wrap fold-links" }, [
        isLong && !state.isExact
          ? this.disclose(this.say(state.isWide ? "less" : "whole_summary"), Boolean(state.isWide), flip("isWide"), "quiet small")
          : null,
        this.disclose(this.say(state.isExact ? "summary_again" : "exact_text"), Boolean(state.isExact), flip("isExact"), "quiet small"),
      ]),
      ...(this.look === "difference" ? [] : [this.draw_dropped(row), this.draw_facts(row), this.draw_values(row, state)]),
      h("footer", { class: "fold-end" }, [...buttons, h("span", { class: "mono faint handle" }, row.handle)]),
    ]);
  },
  // Every line leads to the message that it comes from.
  draw_lines(row, isShort) {
    return (isShort ? row.summary.slice(0, 6) : row.summary).map((line) => {
      if (line.title) return h("h4", line.title);
      const go = () => {
        this.isPinned = false;
        this.$emit("act", { what: "source", id: `${row.id}:${line.at}` });
      };
      return h("button", { class: "record-line", type: "button", title: this.say("go_there"), onClick: go }, draw(line.tree));
    });
  },
  draw_dropped(row) {
    if (!row.dropped.length) return null;
    const list = row.dropped.map((line) => h("li", { class: "faint" }, line));
    return h("div", { class: "fold-part" }, [h("h3", this.say("dropped")), h("ul", { class: "facts" }, list)]);
  },
  draw_facts(row) {
    // What the model does not read has no place in the column of what was sent.
    const facts = this.onlySent ? row.facts.filter((one) => one.sent) : row.facts;
    if (!facts.length) return null;
    const list = facts.map((fact) =>
      h("li", [
        h("span", { class: "chip" }, this.name_of("fact", fact.kind)),
        h("span", fact.text),
        fact.sent ? null : h("span", { class: "chip" }, this.say("not_sent")),
        this.draw_handle(fact.handle),
      ]),
    );
    return h("div", { class: "fold-part" }, [h("h3", this.say("facts")), h("ul", { class: "facts" }, list)]);
  },
  draw_handle(handle) {
    if (!handle) return null;
    const go = () => {
      this.isPinned = false;
      this.$emit("act", { what: "find", id: handle });
    };
    return h("button", { class: "handle-link mono", type: "button", title: this.say("go_there"), onClick: go }, handle);
  },
  draw_values(row, state) {
    const shown = this.onlySent ? row.values.filter((one) => one.sent) : row.values;
    if (!shown.length) return null;
    const groups = {};
    for (const value of shown) (groups[value.sort] ??= []).push(value);
    const isOpen = Boolean(state.isIndexOpen);
    const head = h(
      "button",
      { class: "block-head", type: "button", "aria-expanded": String(isOpen), onClick: () => this.flip(state, "isIndexOpen") },
      [
        h("i", { class: "icon icon-open turnable", "aria-hidden": "true" }),
        h("span", { class: "block-name" }, this.say("index")),
        h("span", { class: "cut mono soft" }, isOpen ? "" : shown.slice(0, 8).map((one) => one.value).join("  ")),
        h("span", { class: "faint num" }, this.say("index_count", { count: this.number(this.onlySent ? shown.length : row.values_total) })),
      ],
    );
    const list = Object.entries(groups).map(([sort, values]) =>
      h("div", { class: "values" }, [
        h("span", { class: "faint" }, this.name_of("sort", sort)),
        h(
          "span",
          { class: "value-list" },
          values.map((value) =>
            h("span", { class: "value" }, [
              h("span", { class: "mono" }, value.value),
              value.note ? h("span", { class: "faint" }, value.note) : null,
              value.sent ? null : h("span", { class: "faint" }, this.say("not_sent")),
            ]),
          ),
        ),
      ]),
    );
    return h("div", { class: `block fold-values ${isOpen ? "open" : ""}` }, [
      head,
      isOpen ? h("div", { class: "value-groups" }, list) : null,
    ]);
  },
  draw_undone(row) {
    const act = () => this.$emit("act", { what: "refold", id: row.id });
    return h("section", { class: "undone" }, [
      h("i", { class: "icon icon-undo", "aria-hidden": "true" }),
      h("span", this.say("undone", { count: this.number(row.count), time: this.time(row.time) })),
      this.frozen ? null : this.press(this.say("fold_again"), "fold", act, "small"),
    ]);
  },
};
