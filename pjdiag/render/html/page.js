"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const byName = new Map(figures.map((figure) => [figure.name, figure]));
  const root = document.documentElement;
  const state = new Map();
  const config = { displayModeBar: false };
  const PAPER = 640;  // pixels across a figure in print, on A4 and on letter paper
  let printing = false;

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // Colours are names of CSS properties, so that one figure serves light and dark paper.
  function coloured(value) {
    if (typeof value === "string") return value.startsWith("--") ? colour(value) : value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
    }
    return value;
  }

  function axis(given, narrow) {
    const own = { ...given };
    own.gridcolor = colour("--grid");
    own.linecolor = colour("--rule");
    own.zerolinecolor = colour("--rule");
    own.automargin = true;
    own.exponentformat = "power";
    own.title = { ...(given && given.title), standoff: 8 };
    own.minorloglabels = "complete";
    if (narrow && own.nticks === undefined) own.nticks = 6;
    return own;
  }

  function draw(figure) {
    const plot = document.getElementById("plot-" + figure.name);
    const now = state.get(figure.name);
    now.width = plot.clientWidth;
    const width = printing ? PAPER : now.width;
    const narrow = width < 420;
    const layout = coloured(figure.layout);
    layout.xaxis = axis(layout.xaxis, narrow);
    layout.yaxis = axis(layout.yaxis, narrow);
    if (figure.switch) layout[figure.switch + "axis"].type = now.log ? "log" : "linear";
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { color: colour("--ink"), size: narrow ? 11 : 12 };
    const slanted = layout.xaxis.tickangle ? 48 : 0;
    layout.margin = { l: 50, r: 12, t: 14, b: 44 + slanted };
    layout.height = layout.height || 320 + slanted;
    layout.width = width;
    layout.hoverlabel = { bgcolor: colour("--paper"), font: { color: colour("--ink") } };
    layout.legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 };
    const traces = coloured(figure.traces).map((trace, index) => {
      if (!figure.choices.length) return trace;
      const y = figure.choices[now.choice].curves[index];
      return { ...trace, y: y, visible: y.length > 0 };
    });
    if (layout.showlegend === undefined) layout.showlegend = traces.length > 1;
    return Plotly.react(plot, traces, layout, config);
  }

  // A figure with a picker has a table of all its choices.
  function table(figure) {
    if (!figure.choices.length) return { headers: figure.headers, rows: figure.rows };
    const x = figure.traces[0].x;
    const rows = [];
    for (const choice of figure.choices) {
      x.forEach((value, index) => {
        rows.push([choice.label, value, ...choice.curves.map((curve) => curve[index] ?? null)]);
      });
    }
    return { headers: ["head", ...figure.headers], rows: rows };
  }

  function shown(figure) {
    const whole = table(figure);
    if (!figure.choices.length) return whole;
    const label = figure.choices[state.get(figure.name).choice].label;
    return { headers: whole.headers, rows: whole.rows.filter((row) => row[0] === label) };
  }

  const LONGEST = 1000;

  function fill(details) {
    const figure = byName.get(details.dataset.table);
    const { headers, rows } = shown(figure);
    const place = details.querySelector(".scroll");
    const made = document.createElement("table");
    const head = made.createTHead().insertRow();
    for (const name of headers) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      head.append(cell);
    }
    const body = made.createTBody();
    for (const row of rows.slice(0, LONGEST)) {
      const line = body.insertRow();
      for (const value of row) {
        const cell = line.insertCell();
        cell.textContent = value === null ? "" : String(value);
        if (typeof value === "number") cell.className = "number";
      }
    }
    place.replaceChildren(made);
    if (rows.length > LONGEST) {
      const note = document.createElement("p");
      note.textContent = (rows.length - LONGEST) + " more rows are in the CSV file.";
      place.append(note);
    }
  }

  function cell(value) {
    const text = value === null ? "" : String(value);
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function download(name) {
    const { headers, rows } = table(byName.get(name));
    const text = [headers, ...rows].map((row) => row.map(cell).join(",") + "\n").join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function dark() {
    if (root.dataset.theme) return root.dataset.theme === "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function redraw() {
    document.getElementById("theme").setAttribute("aria-pressed", String(dark()));
    for (const figure of figures) draw(figure);
  }

  for (const figure of figures) {
    const given = figure.switch ? figure.layout[figure.switch + "axis"].type : "";
    state.set(figure.name, { choice: 0, log: given === "log", width: 0 });
  }
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const select of document.querySelectorAll("[data-pick]")) {
    select.value = "0";
    select.addEventListener("change", () => {
      state.get(select.dataset.pick).choice = Number(select.value);
      draw(byName.get(select.dataset.pick));
      const details = document.querySelector(`details[data-table="${select.dataset.pick}"]`);
      if (details.open) fill(details);
    });
  }
  for (const box of document.querySelectorAll("[data-log]")) {
    box.checked = state.get(box.dataset.log).log;
    box.addEventListener("change", () => {
      state.get(box.dataset.log).log = box.checked;
      draw(byName.get(box.dataset.log));
    });
  }
  for (const details of document.querySelectorAll("details[data-table]")) {
    details.addEventListener("toggle", () => { if (details.open) fill(details); });
  }
  for (const button of document.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", () => download(button.dataset.csv));
  }
  document.getElementById("needs-script")?.remove();
  let painted = "";
  addEventListener("beforeprint", () => {
    painted = root.dataset.theme || "";
    root.dataset.theme = "light";
    printing = true;
    redraw();
  });
  addEventListener("afterprint", () => {
    if (painted) root.dataset.theme = painted; else delete root.dataset.theme;
    printing = false;
    redraw();
  });
  redraw();
  // A figure of another width has other margins and ticks, so that it is drawn anew.
  const resized = new ResizeObserver((entries) => {
    if (printing) return;
    for (const { target } of entries) {
      const name = target.id.slice("plot-".length);
      if (target.clientWidth !== state.get(name).width) draw(byName.get(name));
    }
  });
  for (const figure of figures) resized.observe(document.getElementById("plot-" + figure.name));
})();
