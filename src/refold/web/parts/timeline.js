// Every request of a session as a bar: what was sent, in front of what it would have been. A compression is a fold: the
// slope from the bar before to the bar after it. Up to the limit bars have one scale, above it another, so that what was
// sent is never a thin line. The range over the bars is the scrubber; the server is asked once the reader rests.
const h = (...args) => Vue.h(...args);
const HEIGHT = 100;
// The share of the height below the limit, if something lies above it.
const BELOW = 0.64;
const BARS_MAX = 360;
const REST_MS = 140;

export default {
  props: {
    words: { type: Object, required: true },
    moments: { type: Array, default: () => [] },
    at: { type: Number, default: 0 },
    limit: { type: Number, default: 0 },
    language: { type: String, default: "en" },
  },
  emits: ["seek"],
  data() {
    return { chosen: this.at };
  },
  watch: {
    at(value) {
      this.chosen = value;
    },
  },
  created() {
    this.figures = new Intl.NumberFormat(this.language);
    this.clock = new Intl.DateTimeFormat(this.language, { hour: "2-digit", minute: "2-digit", hour12: false });
  },
  methods: {
    say(key, values = {}) {
      return (this.words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
    },
    number(value) {
      return this.figures.format(Math.round(value));
    },
    dollars(value) {
      return `$${value >= 1 ? value.toFixed(2) : value.toFixed(4)}`;
    },
    seek(at) {
      this.chosen = at;
      clearTimeout(this.resting);
      this.resting = setTimeout(() => this.$emit("seek", { at }), REST_MS);
    },
    slide(event) {
      const at = Number(event.target.value);
      this.seek(at > this.moments.length ? 0 : at);
    },
    step_fold(step) {
      const here = this.chosen || this.moments.length + 1;
      for (let at = here + step; at >= 1 && at <= this.moments.length; at += step) {
        if (this.moments[at - 1].folds) return this.seek(at);
      }
    },
    press(label, icon, act, isOff = false) {
      const settings = { class: "button quiet small square", type: "button", title: label, "aria-label": label, onClick: act, disabled: isOff };
      return h("button", settings, [h("i", { class: `icon icon-${icon}`, "aria-hidden": "true" })]);
    },
    // Bars of neighbours are drawn as one where there are more requests than pixels; the largest of them counts.
    bars() {
      const size = Math.max(1, Math.ceil(this.moments.length / BARS_MAX));
      const made = [];
      for (let start = 0; start < this.moments.length; start += size) {
        const some = this.moments.slice(start, start + size);
        made.push({
          sent: Math.max(...some.map((one) => one.tokens)),
          raw: Math.max(...some.map((one) => one.tokens_raw)),
          folds: some.reduce((sum, one) => sum + one.folds, 0),
          first: start + 1,
          last: start + some.length,
        });
      }
      return made;
    },
    draw_bars() {
      const bars = this.bars();
      const sent = Math.max(1, ...bars.map((one) => one.sent));
      const most = Math.max(sent, ...bars.map((one) => one.raw));
      // A window that is hardly used would make every bar a thin line: it is left out of the picture then.
      const cap = this.limit && this.limit < 4 * sent ? Math.max(this.limit, sent) : sent;
      const below = most > cap ? BELOW * HEIGHT : HEIGHT;
      const height = (tokens) =>
        Math.max(1, tokens <= cap ? (tokens / cap) * below : below + ((tokens - cap) / (most - cap)) * (HEIGHT - below));
      const parts = [];
      bars.forEach((one, x) => {
        const isHere = this.chosen >= one.first && this.chosen <= one.last;
        const box = (name, tall) => h("rect", { class: name, x: x + 0.1, width: 0.8, y: HEIGHT - tall, height: tall });
        parts.push(box("bar-raw", height(one.raw)), box(isHere ? "bar-sent here" : "bar-sent", height(one.sent)));
        if (one.folds && x) {
          const [high, low] = [HEIGHT - height(bars[x - 1].sent), HEIGHT - height(one.sent)];
          parts.push(h("polygon", { class: "bar-fold", points: `${x - 0.1},${high} ${x + 0.9},${low} ${x - 0.1},${low}` }));
        }
      });
      const notches = bars.flatMap((one, x) =>
        one.folds ? [h("span", { class: "notch", style: { left: `${((x + 0.5) / bars.length) * 100}%` } })] : [],
      );
      const settings = { viewBox: `0 0 ${bars.length} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
      const line = cap === this.limit ? [h("span", { class: "limit", style: { bottom: `calc(${height(cap) / HEIGHT} * (100% - 12px))` } }, this.say("limit", { tokens: this.number(cap) }))] : [];
      return [h("svg", settings, parts), ...line, ...notches];
    },
    tell() {
      if (!this.chosen) {
        const last = this.moments[this.moments.length - 1];
        return this.say("now", { count: this.number(this.moments.length), tokens: this.number(last.tokens) });
      }
      const one = this.moments[this.chosen - 1];
      const values = {
        at: this.number(this.chosen),
        count: this.number(this.moments.length),
        time: this.clock.format(new Date(one.time * 1000)),
        tokens: this.number(one.tokens),
        raw: this.number(one.tokens_raw),
      };
      if (one.dollars == null || one.dollars_raw == null) return this.say("request", values);
      return this.say("request_priced", { ...values, paid: this.dollars(one.dollars), raw_paid: this.dollars(one.dollars_raw) });
    },
  },
  render() {
    const count = this.moments.length;
    if (!count) return h("div", { class: "timeline" });
    const figures = this.tell();
    const hasFolds = this.moments.some((one) => one.folds);
    return h("div", { class: "timeline" }, [
      h("div", { class: "timeline-strip" }, [
        ...this.draw_bars(),
        h("input", {
          type: "range",
          min: 1,
          max: count + 1,
          value: this.chosen || count + 1,
          "aria-label": this.say("scrub"),
          "aria-valuetext": figures,
          onInput: this.slide,
        }),
      ]),
      h("div", { class: "timeline-words" }, [
        h("span", { class: "num timeline-figures", role: "status" }, figures),
        hasFolds ? this.press(this.say("fold_before"), "back", () => this.step_fold(-1)) : null,
        hasFolds ? this.press(this.say("fold_after"), "open", () => this.step_fold(1), !this.chosen) : null,
        this.chosen
          ? h("button", { class: "button small", type: "button", onClick: () => this.seek(0) }, [
              h("i", { class: "icon icon-end", "aria-hidden": "true" }),
              h("span", this.say("newest")),
            ])
          : null,
      ]),
    ]);
  },
};
