(() => {
  const { make } = bench;
  const said = (text) => { document.getElementById("status").textContent = text; };
  const table = (caption, heads, rows) => make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption },
    make("table", {}, make("caption", { textContent: caption }),
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col", className: head === "sentences" ? "words" : "", textContent: head })))),
      make("tbody", {}, ...rows)));
  const options = (select, texts, chosen) => {
    select.replaceChildren(...texts.map((text, place) => make("option", { value: String(place), textContent: text })));
    select.value = String(Math.max(0, texts.indexOf(chosen)));
  };

  // A leaderboard with the first seeds alone
  const SVG = "http://www.w3.org/2000/svg";
  const bar = (first, last, count) => {
    const svg = document.createElementNS(SVG, "svg");
    const rect = document.createElementNS(SVG, "rect");
    svg.setAttribute("viewBox", `0 0 ${count * 10} 10`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("class", "ranks");
    svg.setAttribute("aria-hidden", "true");
    for (const [name, value] of [["x", (first - 1) * 10], ["y", 2], ["width", (last - first + 1) * 10], ["height", 6]]) rect.setAttribute(name, value);
    svg.append(rect);
    return svg;
  };
  for (const place of document.querySelectorAll(".used")) {
    const data = JSON.parse(place.querySelector("script").textContent);
    const slider = make("input", { type: "range", min: 1, max: data.seeds.length, value: data.seeds.length });
    slider.setAttribute("aria-label", `Seeds used: ${data.title}`);
    const words = make("output");
    const shown = make("div");
    const show = () => {
      const count = Number(slider.value);
      const rows = data.steps[count - 1];
      words.textContent = ` ${count} of ${data.seeds.length}: ${data.seeds.slice(0, count).join(", ")}`;
      slider.setAttribute("aria-valuetext", words.textContent);
      const ranked = rows.filter((row) => row[4] !== null).length;
      shown.replaceChildren(table(`With ${count} seeds: ${data.title}`, ["method", "avg", "seeds", "rank", "ranks that it may have"],
        rows.map(([method, mean, sd, seeds, first, last]) => {
          const average = make("td", {}, (100 * mean).toFixed(2));
          if (sd !== null) average.append(make("span", { className: "sd", textContent: `\u00b1${(100 * sd).toFixed(2)}` }));
          const texts = [seeds || "-", first === null ? "-" : first === last ? first : `${first}-${last}`];
          return make("tr", {}, make("th", { scope: "row", textContent: method }), average,
            ...texts.map((text) => make("td", { textContent: text })),
            make("td", {}, ...(first === null ? [] : [bar(first, last, ranked)])));
        })));
      if (!ranked) shown.append(make("p", { className: "key", textContent: "Nothing can be tested: a method with one seed has no spread." }));
    };
    slider.addEventListener("input", () => { show(); said(words.textContent); });
    place.append(make("p", {}, make("label", {}, "Seeds used ", slider), words), shown);
    show();
  }

  const apart = (text) => {  // at commas outside of brackets
    const found = [""];
    let deep = 0;
    for (const char of text) {
      deep += (char === "[") - (char === "]");
      if (char === "," && deep === 0) found.push(""); else found[found.length - 1] += char;
    }
    return found;
  };
  const hash = () => { try { return decodeURIComponent(location.hash.slice(1)); } catch { return location.hash.slice(1); } };
  const problem = (error) => [make("p", { className: "warning", textContent: error.message })];

  // The tests of A and B in a campaign's file, whose lines hold each pair once
  const points = (x) => `${x < 0 ? "-" : "+"}${size(x)}`;
  const size = (x) => (x !== 0 && Math.abs(x) < 0.01 ? Math.abs(x).toPrecision(1) : Math.abs(x).toFixed(2));
  const pText = (p) => (p > 0 && p < 0.0001 ? "p\u00a0<\u00a00.0001" : `p\u00a0=\u00a0${p.toFixed(4)}`);
  const fill = (template, facts) => template.replace(/\{(\w+)\}/g, (_, name) => facts[name]);
  const quoted = (word) => (/^[\w.,=:@%+\/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const findPair = (data, [, profile, suite], names) => {
    const own = data.find((one) => one.profile === profile && one.suite === suite);
    const [i, j] = own ? names.map((name) => own.rows.indexOf(name)) : [-1, -1];
    const line = own?.pairs.find(([k, l]) => (k === i && l === j) || (k === j && l === i));
    if (!line) return null;
    let [, , answer, difference, low, high, n, m, test, p, corrected] = line;
    if (line[0] === j) [difference, low, high, n, m] = [-difference, high === null ? null : -high, low === null ? null : -low, m, n];
    const [testName, above] = [own.texts[test], difference >= 0];
    const overTasks = testName === "t over tasks";
    const describe = (words) => {
      const key = own.texts[answer];
      const aside = [i, j].filter((row) => row in own.aside).map((row) => `${own.names[row]} (${own.aside[row]})`);
      const way = words[above ? "ahead" : "behind"];
      const counted = overTasks ? "tasks" : testName.startsWith("paired") ? "paired" : !n && !m ? "none" : !n || !m ? "fixed" : n === m ? "each" : "apart";
      const shown = ["both", "only ahead"].includes(key);
      return {
        label: shown ? way : key === "aside ahead" ? fill(words["uncorrected label"], { way }) : words[key === "untested" ? "untested label" : "open label"],
        style: shown ? (above ? "ahead" : "behind") : "open",
        text: fill(words.lead, {
          a: own.names[i], b: own.names[j], gap: Math.abs(difference) < 0.01 ? "0.00" : size(difference), side: words[above ? "above" : "below"],
          interval: low === null ? "" : fill(words.interval, { ends: `[${points(low)}, ${points(high)}]` }),
          seeds: fill(words[counted], { n: counted === "fixed" ? n || m : n, m }),
          answer: fill(words[key], { way, pairs: own.tested.toLocaleString("en"), aside: aside.join(words.and), reason: testName }),
        }),
      };
    };
    const marked = [i, j].filter((row) => row in (own.imported ?? {}));
    const notes = marked.map((row) => own.texts[own.imported[row]]);
    const imported = notes.length === 2 && notes[0] === notes[1] ? [notes[0]] : notes.map((note, at) => `${own.names[marked[at]]}: ${note}`);
    return {
      low, high, difference, p, describe, imported, overTasks,
      basis: testName.endsWith(" + items") ? `${testName.slice(0, -8)} over seeds and items` : overTasks ? testName : `${testName} over seeds on these items`,
      pValues: [p === null ? "" : `${pText(p)} alone`, corrected === null ? "" : `${pText(corrected)} corrected`].filter(Boolean).join(", "),
    };
  };
  const drawn = (tag, facts) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
    return element;
  };
  const strip = ({ low, high, difference }, most) => {  // an interval about 0, whose ends are in the text
    const svg = drawn("svg", { viewBox: "0 0 400 38", class: "strip", "aria-hidden": "true" });
    const x = (value) => (200 + (190 * value) / most).toFixed(1);
    svg.append(drawn("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: 24 }), drawn("line", { class: "interval", x1: x(low), x2: x(high), y1: 12, y2: 12 }),
      drawn("circle", { cx: x(difference), cy: 12, r: 5 }));
    for (const [text, at, anchor] of [["B ahead", 0, "start"], ["0", 200, "middle"], ["A ahead", 400, "end"]]) {
      const label = drawn("text", { x: at, y: 36, "text-anchor": anchor, class: "tick" });
      label.textContent = text;
      svg.append(label);
    }
    return svg;
  };

  // Two methods in every campaign that has both
  const comparison = document.getElementById("compare");
  if (comparison) {
    const [a, b] = [document.getElementById("compare-a"), document.getElementById("compare-b")];
    const results = document.getElementById("compared");
    const block = (index, data, place, names, most) => {
      const [campaign, profile, suite, , title, synthetic] = place;
      const pair = findPair(data, place, names);
      const head = make("h2", {}, make("a", { href: `campaigns/${campaign}/index.html#significance`, textContent: title }), make("small", { textContent: ` ${campaign}${synthetic ? ", synthetic data" : ""}` }));
      if (!pair) return [head, make("p", { textContent: "These two were not compared." })];
      const verdict = pair.describe(index.words);
      const several = index.places.filter((other) => other[0] === campaign).length > 1;
      const command = ["bench", "compare", ...names, "--campaign", campaign, ...(several ? ["--profile", profile, "--suite", suite] : [])];
      const code = make("code", { textContent: command.map(quoted).join(" ") });
      const copy = make("button", { type: "button", textContent: "Copy" });
      copy.addEventListener("click", () => {
        getSelection().selectAllChildren(code);
        document.execCommand("copy");
        said("copied");
      });
      return [head,
        make("p", { className: "verdict" }, make("span", { className: `verdict-answer ${verdict.style}`, textContent: verdict.label }), " ", make("span", { className: "said", textContent: verdict.text })),
        ...(pair.low === null ? [] : [strip(pair, most)]),
        ...(pair.p === null ? [] : [make("p", { className: "key", textContent: `${pair.basis}; the interval is the pair's own, at 95%; ${pair.pValues}.` })]),
        ...pair.imported.map((text) => make("p", { className: "key", textContent: text })),
        make("p", { className: "command" }, pair.overTasks ? "Tasks and assumptions: " : "Items, tasks and effect sizes: ", code, " ", copy)];
    };
    const show = (index, asked) => {
      const names = [index.rows[a.value], index.rows[b.value]];
      [a.title, b.title] = names;
      const both = names.map((name) => index.rows.indexOf(name));
      const places = index.places.filter(([, , , rows]) => both.every((number) => rows.includes(number)));
      if (!asked) history.replaceState(null, "", `#${names.map(encodeURIComponent).join(",")}`);
      if (names[0] === names[1]) { results.replaceChildren(make("p", { textContent: "Choose two methods." })); return; }
      said(`${places.length} campaigns have both`);
      if (!places.length) { results.replaceChildren(make("p", { textContent: "No campaign here has both." })); return; }
      results.replaceChildren(make("p", { textContent: "Loading." }));
      const token = results.dataset.token = names.join("\n");
      Promise.all(places.map((place) => bench.load(`pairs ${place[0]}`, `campaigns/${place[0]}/pairs.js`).then((data) => [data, place])))
        .then((loaded) => {
          if (results.dataset.token !== token) return;
          const pairs = loaded.map(([data, place]) => findPair(data, place, names)).filter((pair) => pair && pair.low !== null);
          const most = Math.max(0.01, ...pairs.flatMap(({ low, high }) => [Math.abs(low), Math.abs(high)]));
          results.replaceChildren(...loaded.flatMap(([data, place]) => block(index, data, place, names, most)));
        })
        .catch((error) => results.replaceChildren(...problem(error)));
    };
    bench.load("compare", "data/compare.js").then((index) => {
      const sorted = index.names.map((name, number) => [name, number]).sort((x, y) => x[0].localeCompare(y[0], "en", { numeric: true }));
      for (const select of [a, b]) {
        select.replaceChildren(...sorted.map(([name, number]) => make("option", { value: String(number), textContent: name, title: index.rows[number] })));
        select.addEventListener("change", () => show(index, false));
      }
      document.getElementById("compare-swap").addEventListener("click", () => {
        [a.value, b.value] = [b.value, a.value];
        show(index, false);
      });
      const find = (name) => { const at = index.rows.indexOf(name); return at < 0 ? index.names.indexOf(name) : at; };
      const follow = () => {
        const names = apart(hash());
        const at = names.map(find);
        if (names.length === 2 && at.every((number) => number >= 0)) [a.value, b.value] = at.map(String);
        else if (hash()) { results.replaceChildren(make("p", { className: "warning", textContent: `No campaign here has ${names.filter((_, i) => at[i] < 0).join(" nor ") || "two such methods"}.` })); return; }
        else if (sorted.length > 1) [a.value, b.value] = [String(sorted[0][1]), String(sorted[1][1])];
        show(index, true);
      };
      addEventListener("hashchange", follow);
      follow();
    }).catch((error) => results.replaceChildren(...problem(error)));
    comparison.addEventListener("submit", (event) => event.preventDefault());
  }

  // The pairs of sentences that two methods rank most differently
  const items = document.getElementById("items");
  if (items) {
    const [place, a, b] = ["items-place", "items-a", "items-b"].map((name) => document.getElementById(name));
    const results = document.getElementById("browsed");
    const MOST = 40;
    const goldRanks = (gold) => {
      const order = gold.map((value, at) => [value, at]).sort((x, y) => y[0] - x[0]);
      const ranks = [];
      for (let start = 0; start < order.length;) {
        let end = start;
        while (end < order.length && order[end][0] === order[start][0]) end += 1;
        for (let at = start; at < end; at += 1) ranks[order[at][1]] = (start + end + 1) / 2;
        start = end;
      }
      return ranks;
    };
    const show = (data) => {
      const [i, j] = [Number(a.value), Number(b.value)];
      const blocks = data.tasks.flatMap((task) => {
        const [one, other, gold] = [task.ranks[i], task.ranks[j], goldRanks(task.gold)];
        const order = task.gold.map((_, at) => at).sort((x, y) => Math.abs(other[y] - one[y]) - Math.abs(other[x] - one[x]) || x - y);
        const rows = order.slice(0, MOST).map((at) => make("tr", {}, make("th", { scope: "row", textContent: (other[at] - one[at]).toFixed(1) }),
          ...[one[at], other[at], gold[at], task.gold[at]].map((value) => make("td", { textContent: String(value) })),
          make("td", { className: "words" }, task.texts[at][0], make("br"), task.texts[at][1])));
        return [make("h2", { textContent: `${task.task}: ${task.gold.length} pairs` }),
          table(`Pairs of ${task.task}`, ["B - A", "A", "B", "gold's rank", "gold", "sentences"], rows)];
      });
      results.replaceChildren(...blocks);
      said(`${data.rows[i]} against ${data.rows[j]}`);
    };
    const load = (first) => {
      const [campaign, number] = place.value.split("/");
      if (!campaign) return;
      bench.load(`items ${campaign} ${number}`, `campaigns/${campaign}/items-${number}.js`).then((data) => {
        const names = first ?? [];
        const missing = names.find((name) => !data.rows.includes(name));
        if (missing !== undefined) throw new Error(`No pairs of ${missing} in ${campaign}.`);
        options(a, data.rows, names[0] ?? data.rows[0]);
        options(b, data.rows, names[1] ?? data.rows[1]);
        for (const select of [a, b]) select.onchange = () => { keep(data); show(data); };
        show(data);
      }).catch((error) => results.replaceChildren(...problem(error)));
    };
    const keep = (data) => history.replaceState(null, "", `#${[place.value, data.rows[a.value], data.rows[b.value]].map(encodeURIComponent).join(",")}`);
    const follow = () => {
      const [wanted, ...names] = apart(hash());
      if ([...place.options].some((option) => option.value === wanted)) place.value = wanted;
      else if (wanted) { results.replaceChildren(...problem(new Error(`No pairs of ${wanted} here.`))); return; }
      load(names.length ? names : null);
    };
    place.addEventListener("change", () => load(null));
    addEventListener("hashchange", follow);
    items.addEventListener("submit", (event) => event.preventDefault());
    follow();
  }
})();
