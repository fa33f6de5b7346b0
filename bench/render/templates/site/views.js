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

  // Two methods in every campaign that has both
  const comparison = document.getElementById("compare");
  if (comparison) {
    const [a, b] = [document.getElementById("compare-a"), document.getElementById("compare-b")];
    const results = document.getElementById("compared");
    const block = (data, place, names) => {
      const [campaign, profile, suite] = place;
      const own = data.find((one) => one.profile === profile && one.suite === suite);
      const at = own ? names.map((name) => own.rows.indexOf(name)) : [-1, -1];
      const pair = own?.pairs.find(([i, j]) => (i === at[0] && j === at[1]) || (i === at[1] && j === at[0]));
      const head = make("h2", {}, make("a", { href: `campaigns/${campaign}/index.html#significance`, textContent: campaign }), ` ${suite}, profile ${profile}`);
      if (!pair) return [head, make("p", { textContent: "These two were not compared." })];
      const texts = pair.slice(2).map((number) => own.texts[number]);
      return [head, make("p", { className: "verdict", textContent: texts[0] }),
        make("p", {}, make("strong", { textContent: texts[texts.length - 1] })),
        make("details", {}, make("summary", { textContent: "All that is said" }),
          make("ul", { className: "notes" }, ...texts.slice(1, -1).map((text) => make("li", { textContent: text }))))];
    };
    const show = (index, asked) => {
      const names = [index.rows[a.value], index.rows[b.value]];
      const both = names.map((name) => index.rows.indexOf(name));
      const places = index.places.filter(([, , , rows]) => both.every((number) => rows.includes(number)));
      if (!asked) history.replaceState(null, "", `#${names.map(encodeURIComponent).join(",")}`);
      if (names[0] === names[1]) { results.replaceChildren(make("p", { textContent: "Choose two methods." })); return; }
      said(`${places.length} campaigns have both`);
      if (!places.length) { results.replaceChildren(make("p", { textContent: "No campaign here has both." })); return; }
      results.replaceChildren(make("p", { textContent: "Loading." }));
      const token = results.dataset.token = names.join("\n");
      Promise.all(places.map((place) => bench.load(`pairs ${place[0]}`, `campaigns/${place[0]}/pairs.js`).then((data) => block(data, place, names))))
        .then((blocks) => { if (results.dataset.token === token) results.replaceChildren(...blocks.flat()); })
        .catch((error) => results.replaceChildren(...problem(error)));
    };
    bench.load("compare", "data/compare.js").then((index) => {
      const sorted = index.rows.map((name, number) => [name, number]).sort((x, y) => x[0].localeCompare(y[0], "en", { numeric: true }));
      for (const select of [a, b]) {
        select.replaceChildren(...sorted.map(([name, number]) => make("option", { value: String(number), textContent: name })));
        select.addEventListener("change", () => show(index, false));
      }
      const follow = () => {
        const names = apart(hash());
        const at = names.map((name) => index.rows.indexOf(name));
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
