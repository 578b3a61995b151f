// A place to drop files or folders on, or to choose them: the newest ones that look like sessions are sent to the server.
const h = (...args) => Vue.h(...args);
const NAMES = /\.jsonl?(\.gz)?$/i;

async function walk(entry, found) {
  if (!entry || found.length > 5000) return;
  if (entry.isFile) {
    if (NAMES.test(entry.name)) found.push(await new Promise((done, fail) => entry.file(done, fail)));
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return;
    for (const one of some) await walk(one, found);
  }
}

export default {
  props: {
    words: { type: Object, required: true },
    target: { type: String, required: true },
    filesMax: { type: Number, default: 400 },
    bytesMax: { type: Number, default: 1e8 },
  },
  emits: ["sent"],
  data() {
    return { isOver: false, status: "", isBusy: false };
  },
  mounted() {
    this.over = (event) => {
      if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
      event.preventDefault();
      this.isOver = true;
    };
    this.leave = (event) => {
      if (!event.relatedTarget) this.isOver = false;
    };
    document.addEventListener("dragover", this.over);
    document.addEventListener("dragleave", this.leave);
    document.addEventListener("drop", this.drop);
  },
  beforeUnmount() {
    document.removeEventListener("dragover", this.over);
    document.removeEventListener("dragleave", this.leave);
    document.removeEventListener("drop", this.drop);
  },
  methods: {
    say(key, values = {}) {
      return (this.words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
    },
    async drop(event) {
      event.preventDefault();
      this.isOver = false;
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      const found = [];
      for (const entry of entries) await walk(entry, found);
      await this.send(found);
    },
    async choose(event) {
      await this.send([...event.target.files].filter((file) => NAMES.test(file.name)));
      event.target.value = "";
    },
    async send(files) {
      if (this.isBusy) return;
      if (!files.length) {
        this.status = this.say("none");
        return;
      }
      files.sort((one, other) => other.lastModified - one.lastModified);
      const form = new FormData();
      let bytes = 0;
      let count = 0;
      for (const file of files) {
        if (count >= this.filesMax || bytes + file.size > this.bytesMax) break;
        form.append("files", file, file.name);
        bytes += file.size;
        count++;
      }
      if (!count) {
        this.status = this.say("large");
        return;
      }
      this.isBusy = true;
      this.status = this.say("sending", { count });
      try {
        const answer = await fetch(this.target, { method: "POST", body: form });
        this.status = answer.ok ? "" : this.say(answer.status === 409 ? "busy" : "failed", { status: answer.status });
        if (answer.ok) this.$emit("sent", {});
      } catch {
        this.status = this.say("failed", { status: "" });
      } finally {
        this.isBusy = false;
      }
    },
    pick(label, isFolder) {
      const settings = { type: "file", multiple: true, class: "hidden-text", onChange: this.choose };
      if (isFolder) settings.webkitdirectory = true;
      else settings.accept = ".json,.jsonl,.gz";
      return h("label", { class: "button small" }, [h("span", label), h("input", settings)]);
    },
  },
  render() {
    return h("div", { class: `drop ${this.isOver ? "over" : ""}` }, [
      h("i", { class: "icon icon-upload", "aria-hidden": "true" }),
      h("p", [h("strong", this.say("drop"))]),
      h("div", { class: "row wrap" }, [this.pick(this.say("files"), false), this.pick(this.say("folder"), true)]),
      this.status ? h("p", { class: "faint", role: "status" }, this.status) : null,
    ]);
  },
};
