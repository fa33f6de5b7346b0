"use strict";
// Data of a page come as scripts: a page of file:// may load nothing else. Each hands itself over by its name.
const bench = (() => {
  const root = document.body.dataset.root;
  const waiting = new Map();
  const load = (name, path) => {
    if (!waiting.has(name)) {
      const one = {};
      one.promise = new Promise((done, failed) => { one.done = done; one.failed = failed; });
      waiting.set(name, one);
      const script = Object.assign(document.createElement("script"), { src: root + path });
      script.addEventListener("error", () => one.failed(new Error(`${path} can't be loaded`)));
      document.head.append(script);
    }
    return waiting.get(name).promise;
  };
  const take = (name, data) => waiting.get(name)?.done(data);
  const make = (tag, facts = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), facts);
    element.append(...children);
    return element;
  };
  return { root, load, take, make };
})();

(() => {
  // The theme that was chosen holds for all pages, where the browser keeps it
  const page = document.documentElement;
  try { const kept = localStorage.getItem("theme"); if (kept === "dark" || kept === "light") page.dataset.theme = kept; } catch { /* it keeps nothing */ }
  document.getElementById("theme").addEventListener("click", () => setTimeout(() => {
    try { localStorage.setItem("theme", page.dataset.theme); } catch { /* it keeps nothing */ }
  }));

  // Search: every word has to be in a name, or in what leads to it; names first
  const field = document.getElementById("search");
  const list = document.getElementById("found");
  const close = () => { list.hidden = true; list.replaceChildren(); field.setAttribute("aria-expanded", "false"); };
  const show = (entries) => {
    const words = field.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) { close(); return; }
    const rank = ([, name, , more]) => {
      const own = name.toLowerCase();
      if (own === words.join(" ")) return 0;
      if (words.every((word) => own.includes(word))) return 1;
      return words.every((word) => `${own} ${more.toLowerCase()}`.includes(word)) ? 2 : 3;
    };
    const found = entries.map((entry) => [rank(entry), entry]).filter(([at]) => at < 3).sort((a, b) => a[0] - b[0]);
    list.replaceChildren(...found.slice(0, 20).map(([, [kind, name, path]]) => bench.make("li", {},
      bench.make("a", { href: bench.root + path, textContent: name }), bench.make("small", { textContent: ` ${kind}` }))));
    if (!found.length) list.append(bench.make("li", { textContent: "nothing has all these words" }));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    document.getElementById("status").textContent = `${found.length} found`;
  };
  const search = () => bench.load("search", "data/search.js").then(show);
  field.addEventListener("input", search);
  field.form.addEventListener("submit", (event) => { event.preventDefault(); list.querySelector("a")?.click(); });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); field.focus(); }
    if (event.key === "ArrowDown" && event.target.closest?.(".search")) {
      const links = [...list.querySelectorAll("a")];
      links[(links.indexOf(document.activeElement) + 1) % links.length]?.focus();
      event.preventDefault();
    }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) close(); });
})();
