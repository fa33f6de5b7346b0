
  // Figures: a legend that hides series, and what is nearest to the pointer
  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector(".plot svg");
    const series = new Map([...svg.querySelectorAll(".series")].map((group) => [group.dataset.s, group]));
    if (!series.size) continue;
    const buttons = [...figure.querySelectorAll(".keys button")];
    const said = document.createElement("p");
    said.className = "readout";
    figure.querySelector(".plot").after(said);

    const hidden = new Set();
    const show = () => {
      for (const [name, group] of series) group.classList.toggle("off", hidden.has(name));
      for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.s)));
    };
    const state = `${figure.id}.hidden`;
    const hide = (names) => {
      hidden.clear();
      for (const name of names) if (series.has(name)) hidden.add(name);
      show();
    };
    bring(state, (value) => {
      hide(value === null ? [] : value.split("."));
      return hidden.size > 0;
    });
    const changed = (names) => { hide(names); keep(state, hidden.size ? [...hidden].join(".") : null); };
    for (const button of buttons) {
      const name = button.dataset.s;
      button.addEventListener("click", () => {
        changed(hidden.has(name) ? [...hidden].filter((each) => each !== name) : [...hidden, name]);
      });
      const light = () => { stress(name); said.textContent = told(name); };
      for (const event of ["focus", "pointerenter"]) button.addEventListener(event, light);
      for (const event of ["blur", "pointerleave"]) button.addEventListener(event, () => stress(null));
    }
    if (buttons.length > 2) {
      const list = figure.querySelector(".keys");
      for (const [text, names] of [["all", () => []], ["none", () => [...series.keys()]]]) {
        const button = Object.assign(document.createElement("button"), { type: "button", className: "all", textContent: text });
        button.addEventListener("click", () => changed(names()));
        const item = document.createElement("li");
        item.append(button);
        list.append(item);
      }
    }

    const stress = (name) => {
      svg.classList.toggle("dim", name !== null && buttons.length > 2);
      for (const [each, group] of series) group.classList.toggle("on", each === name);
    };
    // Places of all points, in the figure's own units: of markers, and of the corners of lines
    let places = null;
    const short = (value) => String(Number(value.toPrecision(4)));
    const measure = () => {
      places = [];
      for (const [name, group] of series) {
        for (const mark of group.querySelectorAll(".point")) {
          const box = mark.getBBox();
          places.push({ name, x: box.x + box.width / 2, y: box.y + box.height / 2, text: mark.textContent });
        }
        const line = group.querySelector(".line");
        if (!line || !group.dataset.x) continue;
        const [x, y] = [group.dataset.x, group.dataset.y].map((text) => text.split(" ").map(Number));
        const back = ([low, high, start, end], at) => low + (at - start) / (end - start) * (high - low);
        for (const corner of line.getAttribute("d").slice(1).split("L")) {
          const [a, b] = corner.split(" ").map(Number);
          places.push({ name, x: a, y: b, text: `${line.textContent}: ${short(back(x, a))}, ${short(back(y, b))}` });
        }
      }
    };
    const told = (name) => {
      if (!places) measure();
      const own = places.filter((place) => place.name === name);
      const texts = own.slice(0, 6).map((place) => place.text);
      return texts.join("; ") + (own.length > 6 ? "; ..." : "");
    };
    svg.addEventListener("pointermove", (event) => {
      if (!places) measure();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let best = null;
      let nearest = 30 ** 2;
      for (const place of places) {
        const far = (place.x - at.x) ** 2 + (place.y - at.y) ** 2;
        if (far < nearest && !hidden.has(place.name)) [best, nearest] = [place, far];
      }
      stress(best ? best.name : null);
      said.textContent = best ? best.text : "";
    });
    svg.addEventListener("pointerleave", () => { stress(null); said.textContent = ""; });
  }

  addEventListener("hashchange", follow);
  follow();
})();
