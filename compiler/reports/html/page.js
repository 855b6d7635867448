// The page's behaviour: unpack the data, draw the charts, fill the tables.

const COLUMNS = 480; // of a chart: stretches of the schedule, each with its highest step
const SHOWN = 6; // of what stands at a step
const LINES = 1500; // of a program's text at a time
const TITLES = {predicted: "As planned", xla: "As XLA assigned it"};
const NAMES = {
  workspace: "workspace of loops and functions", backward: "gradients and cotangents", recomputed: "recomputed",
  forward: "forward, not kept", kept: "kept for the backward pass", results: "results", arguments: "arguments, constants",
};
const ORDER = ["arguments", "results", "kept", "forward", "recomputed", "backward", "workspace"]; // from below
const by = (id) => document.getElementById(id);

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// -- amounts, as the reports write them ------------------------------------------------------------------------------

function formatBytes(count) {
  let amount = count;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) return unit === "B" ? `${count} B` : `${amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

function formatFlops(count) {
  let amount = count;
  if (count < 1000) return `${Math.round(count)} FLOP`;
  for (const prefix of ["", "k", "M", "G", "T", "P"]) {
    if (amount < 999.5 || prefix === "P") {
      return `${amount < 9.995 ? amount.toFixed(2) : amount < 99.95 ? amount.toFixed(1) : amount.toFixed(0)} ${prefix}FLOP`;
    }
    amount /= 1000;
  }
}

function unitOf(most) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (most >= 4 * size) return [unit, size];
  }
  return ["B", 1];
}

const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

function make(tag, content = "", attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...(Array.isArray(content) ? content : [content]));
  return element;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// -- timelines ---------------------------------------------------------------------------------------------------------

class Timeline {
  constructor(data, page) {
    Object.assign(this, data);
    this.texts = page.texts;
    this.roles = page.roles;
    this.phases = page.phases;
    this.count = data.steps.name.length;
    this.bands = {};
    const total = new Float64Array(this.count);
    for (const role of page.roles) this.bands[role] = new Float64Array(this.count + 1);
    const {size, begin, end, role} = data.buffers;
    for (let at = 0; at < size.length; at++) {
      const band = this.bands[page.roles[role[at]]];
      band[begin[at]] += size[at];
      band[end[at] + 1] -= size[at];
    }
    for (const name of page.roles) {
      const band = this.bands[name];
      for (let step = 1; step < this.count; step++) band[step] += band[step - 1];
      this.bands[name] = band.subarray(0, this.count);
    }
    this.bands.workspace = Float64Array.from(data.steps.workspace);
    for (const band of Object.values(this.bands)) for (let step = 0; step < this.count; step++) total[step] += band[step];
    this.total = total;
    this.peak = total.reduce((best, amount, step) => (amount > total[best] ? step : best), 0);
    this.bands.results = new Float64Array(this.count).fill(data.results);
    this.bands.arguments = new Float64Array(this.count).fill(data.arguments);
  }

  // One row for each band and stretch of steps, at the stretch's highest step, so that no peak is lost.
  rows(low, high, shown, size) {
    const found = [];
    const width = Math.max(1, (high - low) / COLUMNS);
    for (let from = low; from < high; from += width) {
      let best = Math.floor(from);
      for (let step = best; step < Math.min(Math.floor(from + width), high); step++) {
        if (this.total[step] > this.total[best]) best = step;
      }
      const last = from + width >= high;
      ORDER.forEach((name, place) => {
        if (!shown.has(name)) return;
        found.push({step: Math.floor(from), band: name, place, amount: this.bands[name][best] / size});
        if (last) found.push({step: high, band: name, place, amount: this.bands[name][best] / size});
      });
    }
    return found;
  }

  standing(step) {
    const {begin, end} = this.buffers;
    const found = [];
    for (let at = 0; at < begin.length; at++) if (begin[at] <= step && step <= end[at]) found.push(at);
    return found;
  }

  stepName(step) {
    const place = this.texts[this.steps.place[step]];
    return `${this.texts[this.steps.name[step]]}${place ? ` at ${place}` : ""}`;
  }
}

class Chart {
  constructor(timeline, page, charts) {
    this.timeline = timeline;
    this.charts = charts;
    this.range = [0, timeline.count];
    this.step = timeline.peak;
    this.isHeld = false;
    this.band = null;
    this.plot = make("div", "", {class: "plot", tabindex: "0", role: "img"});
    this.panel = make("div", "", {class: "step"});
    const most = formatBytes(timeline.total[timeline.peak]);
    const note = timeline.block ? `${most} live at the peak, ${formatBytes(timeline.block)} allocated` : `${most} at the peak`;
    this.plot.setAttribute("aria-label", `${TITLES[timeline.name]}: temporary memory over ${timeline.count} steps, ${note}`);
    const title = make("h3", [TITLES[timeline.name], " ", make("small", note)]);
    this.element = make("div", [title, this.plot, this.panel], {class: "chart", "data-name": timeline.name});
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.describe();
  }

  spec() {
    const {charts, timeline} = this;
    const [unit, size] = charts.unit;
    const [low, high] = this.range;
    const soft = colour("soft"), rule = colour("rule"), ink = colour("ink");
    const marks = [];
    if (timeline.backward > low && timeline.backward < high) marks.push({step: timeline.backward, text: "backward pass begins"});
    const bands = ORDER.filter((name) => charts.shown.has(name));
    const x = {field: "step", type: "quantitative", scale: {domain: [low, high], nice: false},
      axis: {title: "step of the schedule", format: "d", tickMinStep: 1, tickCount: 6}};
    const room = (charts.shown.has("arguments") ? timeline.arguments : 0) + (charts.shown.has("results") ? timeline.results : 0);
    const layers = [
      {
        data: {name: "live"},
        mark: {type: "area", interpolate: "step-after", line: false},
        encoding: {
          x,
          y: {field: "amount", type: "quantitative", stack: "zero", scale: {domain: [0, charts.top()], nice: false},
            axis: {title: `memory, ${unit}`, tickCount: 6}},
          color: {field: "band", type: "nominal", legend: null, scale: {domain: bands, range: bands.map(colour)}},
          order: {field: "place", type: "quantitative"},
        },
      },
      {data: {values: marks}, mark: {type: "rule", strokeDash: [5, 4], color: ink, opacity: 0.75}, encoding: {x: {field: "step", type: "quantitative"}}},
      {data: {values: marks}, mark: {type: "text", align: "center", baseline: "bottom", color: ink, fontSize: 12, y: -3},
        encoding: {x: {field: "step", type: "quantitative"}, text: {field: "text"}}},
      {data: {name: "cursor"}, mark: {type: "rule", color: ink, strokeWidth: 1.5}, encoding: {x: {field: "step", type: "quantitative"}}},
      {data: {name: "brush"}, mark: {type: "rect", color: soft, opacity: 0.25}, encoding: {x: {field: "from", type: "quantitative"}, x2: {field: "to"}}},
    ];
    if (timeline.block) {
      const block = [{amount: (timeline.block + room) / size}];
      const y = {field: "amount", type: "quantitative"};
      layers.splice(1, 0, {data: {values: block}, mark: {type: "rule", color: ink, opacity: 0.75, strokeWidth: 1}, encoding: {y}},
        {data: {values: block}, mark: {type: "text", x: "width", align: "right", baseline: "bottom", dy: -2, fontSize: 12, color: ink, text: "allocated"}, encoding: {y}});
    }
    return {
      datasets: {live: timeline.rows(low, high, charts.shown, size), cursor: [{step: this.step + 0.5}], brush: []},
      width: "container", height: 270, autosize: {type: "fit", contains: "padding"}, background: null, layer: layers,
      config: {
        font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
        view: {stroke: null},
        axis: {labelColor: soft, titleColor: soft, gridColor: rule, domainColor: rule, tickColor: rule, labelFontSize: 12,
          titleFontSize: 12, titleFontWeight: "normal", labelOverlap: true},
      },
    };
  }

  async draw() {
    const result = await window.vegaEmbed(this.plot, this.spec(), {actions: false, renderer: "canvas", ast: false});
    this.view?.finalize();
    this.view = result.view;
    this.view.addEventListener("mousemove", (event) => this.move(event));
    this.view.addEventListener("mousedown", (event) => { this.start = this.at(event); });
    this.view.addEventListener("mouseup", (event) => this.up(event));
    this.view.addEventListener("mouseout", () => this.leave());
    this.view.addEventListener("dblclick", () => this.zoom([0, this.timeline.count]));
  }

  at(event) {
    const [left, top] = this.view.origin();
    const box = this.plot.querySelector("canvas").getBoundingClientRect();
    const step = this.view.scale("x").invert(event.clientX - box.left - left);
    const amount = this.view.scale("y").invert(event.clientY - box.top - top);
    return {step: Math.max(this.range[0], Math.min(this.range[1] - 1, Math.floor(step))), amount};
  }

  move(event) {
    const {step, amount} = this.at(event);
    if (this.start && Math.abs(step - this.start.step) >= 2) {
      this.brush = [Math.min(step, this.start.step), Math.max(step, this.start.step) + 1];
      this.view.data("brush", [{from: this.brush[0], to: this.brush[1]}]).runAsync();
    }
    if (!this.isHeld) this.show(step, this.bandAt(step, amount));
  }

  up(event) {
    const {brush, start} = this;
    this.start = this.brush = null;
    if (brush) return void this.zoom(brush);
    if (!start) return;
    const {step, amount} = this.at(event);
    this.isHeld = !this.isHeld;
    this.show(step, this.bandAt(step, amount));
  }

  leave() {
    if (!this.isHeld && !this.start) this.show(this.timeline.peak, null);
  }

  key(event) {
    const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20};
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.isHeld = true;
    this.show(Math.max(0, Math.min(this.timeline.count - 1, this.step + moves[event.key])), null);
  }

  bandAt(step, amount) {
    let below = 0;
    const bytes = amount * this.charts.unit[1];
    for (const name of ORDER) {
      if (!this.charts.shown.has(name)) continue;
      below += this.timeline.bands[name][step];
      if (bytes < below) return name;
    }
    return null;
  }

  zoom(range) {
    this.range = range;
    this.isHeld = false;
    this.draw();
  }

  show(step, band) {
    if (step === this.step && band === this.band && this.panel.firstChild) return;
    this.step = step;
    this.band = band;
    this.view?.data("cursor", [{step: step + 0.5}]).runAsync();
    this.describe();
  }

  describe() {
    const {timeline, step} = this;
    const isPeak = step === timeline.peak;
    const {buffers, texts, roles} = timeline;
    const role = roles.indexOf(this.band);
    const all = timeline.standing(step);
    const found = role < 0 ? all : all.filter((at) => buffers.role[at] === role);
    const groups = new Map();
    for (const at of found) {
      const key = [texts[buffers.name[at]].replace(/\.\d+$/, ""), buffers.type[at], buffers.place[at], buffers.role[at]].join();
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(at);
    }
    const sums = [...groups.values()].map((group) => [group.reduce((sum, at) => sum + buffers.size[at], 0), group]);
    sums.sort((one, other) => other[0] - one[0]);
    const head = [
      make("strong", `${isPeak ? "the peak, " : ""}step ${step + 1} of ${timeline.count}`),
      make("span", `${timeline.phases[timeline.steps.phase[step]]}: ${timeline.stepName(step)}`),
      make("span", `${formatBytes(timeline.total[step])} live${this.isHeld ? ", held" : ""}`),
    ];
    const rows = sums.slice(0, SHOWN).map(([sum, group]) => this.row(sum, group));
    const rest = sums.slice(SHOWN);
    if (rest.length) {
      const left = rest.reduce((total, [sum]) => total + sum, 0);
      rows.push(make("tr", [make("td", formatBytes(left), {class: "number"}), make("td", `${plural(rest.reduce((sum, [, group]) => sum + group.length, 0), "other buffer")}`)]));
    }
    if (timeline.steps.workspace[step] && (role < 0)) {
      rows.push(make("tr", [make("td", formatBytes(timeline.steps.workspace[step]), {class: "number"}), make("td", "inside of this step")]));
    }
    if (!rows.length) rows.push(make("tr", make("td", this.band && role < 0 ? NAMES[this.band] : "nothing", {colspan: "2"})));
    const what = role < 0 ? "" : make("p", `${NAMES[this.band]}: ${formatBytes(timeline.bands[this.band][step])}`);
    this.panel.replaceChildren(make("div", head, {class: "where"}), what, make("table", rows));
  }

  row(sum, group) {
    const {timeline} = this;
    const {buffers, texts, roles} = timeline;
    const at = group[0];
    const times = group.length > 1 ? `${group.length} x ${formatBytes(buffers.size[at])}` : "";
    const swatch = make("i", "", {class: "swatch", style: `background:var(--${roles[buffers.role[at]]})`, title: NAMES[roles[buffers.role[at]]]});
    const readers = [...new Set(buffers.readers[at].map((step) => texts[timeline.steps.name[step]]))];
    const many = buffers.count[at] - buffers.readers[at].length;
    if (many > 0) readers.splice(readers.length - 1, 0, `${many} more`);
    const users = readers.length ? `needed by ${readers.join(", ")}, last at step ${buffers.end[at] + 1}` : "needed by nothing";
    const text = [
      swatch, ` ${texts[buffers.name[at]]} ${texts[buffers.type[at]]} ${texts[buffers.place[at]]}`,
      make("span", `${group.length > 1 ? "the first " : ""}written at step ${buffers.begin[at] + 1}, ${users}`, {class: "users"}),
    ];
    return make("tr", [make("td", [formatBytes(sum), ...(times ? [make("span", times, {class: "users"})] : [])], {class: "number"}), make("td", text)]);
  }
}

class Charts {
  constructor(page) {
    this.shown = new Set(ORDER);
    this.list = page.timelines.map((data) => new Chart(new Timeline(data, page), page, this));
    this.used = ORDER.filter((name) => this.list.some((chart) => chart.timeline.bands[name].some((amount) => amount > 0)));
    this.shown = new Set(this.used);
    this.unit = unitOf(Math.max(1, ...this.list.map((chart) => this.highest(chart.timeline))));
    by("charts").append(...this.list.map((chart) => chart.element));
    by("charts").classList.toggle("single", this.list.length === 1);
    for (const name of [...this.used].reverse()) {
      const button = make("button", [make("i", "", {class: "swatch", style: `background:var(--${name})`}), NAMES[name]],
        {type: "button", "aria-pressed": "true", "data-band": name});
      button.addEventListener("click", () => {
        const isShown = this.shown.delete(name);
        if (!isShown) this.shown.add(name);
        button.setAttribute("aria-pressed", String(!isShown));
        this.draw();
      });
      by("legend").append(button);
    }
  }

  highest(timeline) {
    let most = 0;
    for (let step = 0; step < timeline.count; step++) {
      let sum = 0;
      for (const name of this.shown) sum += timeline.bands[name][step];
      most = Math.max(most, sum);
    }
    let room = timeline.block ?? 0;
    for (const name of ["arguments", "results"]) if (this.shown.has(name)) room += timeline[name];
    return Math.max(most, timeline.block ? room : 0);
  }

  // Both charts have one axis, so that they can be compared.
  top() {
    return (Math.max(1, ...this.list.map((chart) => this.highest(chart.timeline))) * 1.06) / this.unit[1];
  }

  async draw() {
    await Promise.all(this.list.map((chart) => chart.draw()));
  }
}

// -- the source --------------------------------------------------------------------------------------------------------

function cost(amount, most, text, title, name) {
  const cell = make("td", "", {class: "cost", title});
  if (amount > 0) cell.append(make("i", "", {style: `background:var(--${name});width:${Math.max(3, (100 * amount) / most)}%`}));
  cell.append(make("span", text));
  return cell;
}

function showFiles(files) {
  const all = files.flatMap((file) => file.lines).filter((line) => line.length);
  const kept = Math.max(1, ...all.map((line) => line[2])), flops = Math.max(1, ...all.map((line) => line[4]));
  for (const file of files) {
    const lines = file.lines.map((line) => {
      if (!line.length) return make("tr", make("td", "...", {colspan: "4"}), {class: "gap"});
      const [number, text, bytes, values, again, times] = line;
      return make("tr", [
        make("td", String(number), {class: "line"}),
        cost(bytes, kept, bytes ? formatBytes(bytes) : "", values ? `${plural(values, "value")} kept` : "", "kept"),
        cost(again, flops, again ? formatFlops(again) : times ? "0 FLOP" : "", times ? `${plural(times, "evaluation")} again` : "", "recomputed"),
        make("td", text, {class: "text code"}),
      ]);
    });
    const head = make("tr", ["", "bytes kept", "FLOPs again", ""].map((title) => make("th", title)));
    by("files").append(make("div", [make("h3", file.name), make("table", [head, ...lines])], {class: "file"}));
  }
  if (!files.length) by("files").append(make("p", "Nothing is kept or computed again."));
}

// -- kept and computed again -------------------------------------------------------------------------------------------

class Decisions {
  constructor(rows) {
    this.rows = rows;
    this.open = new Set();
    this.which = "all";
    by("filter").addEventListener("input", () => this.show());
    for (const button of document.querySelectorAll("[data-which]")) {
      button.addEventListener("click", () => {
        this.which = button.dataset.which;
        for (const one of document.querySelectorAll("[data-which]")) one.setAttribute("aria-pressed", String(one === button));
        this.show();
      });
    }
    by("unfold").addEventListener("click", () => {
      const isOpen = this.open.size > 0;
      this.open = new Set(isOpen ? [] : this.rows.map((row) => row.block));
      this.show();
    });
    this.show();
  }

  matching() {
    const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    return this.rows.filter((row) => {
      if (this.which !== "all" && row.is_kept !== (this.which === "kept")) return false;
      const text = `${row.block} ${row.what} ${row.type} ${row.place} ${row.is_kept ? "kept" : "computed again"}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  show() {
    const rows = this.matching();
    const isFiltered = by("filter").value.trim() !== "";
    const blocks = new Map();
    for (const row of rows) {
      if (!blocks.has(row.block)) blocks.set(row.block, []);
      blocks.get(row.block).push(row);
    }
    const weight = (row) => (row.is_kept ? row.size * row.count : row.flops / 1e6);
    const sum = (list, amount) => list.reduce((total, row) => total + amount(row), 0);
    const sorted = [...blocks].sort((one, other) => sum(other[1], weight) - sum(one[1], weight));
    const body = [];
    for (const [block, list] of sorted) {
      const isOpen = isFiltered || this.open.has(block);
      const kept = sum(list, (row) => (row.is_kept ? row.size * row.count : 0));
      const flops = sum(list, (row) => row.flops);
      const head = this.row([block || "(no line known)", "", "", `${sum(list, (row) => row.count)}`, kept ? formatBytes(kept) : "", flops ? formatFlops(flops) : "", ""], `block${isOpen ? " open" : ""}`);
      head.tabIndex = 0;
      const toggle = () => {
        if (!this.open.delete(block)) this.open.add(block);
        this.show();
      };
      head.addEventListener("click", toggle);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
      body.push(head);
      if (!isOpen) continue;
      for (const row of list) {
        const name = make("span", [make("i", "", {class: "swatch", style: `background:var(--${row.is_kept ? "kept" : "recomputed"})`}), ` ${row.is_kept ? "kept" : "again"}: ${row.what}`]);
        const cells = [name, row.type, row.size ? formatBytes(row.size) : "", row.count > 1 ? `x ${row.count}` : "1", row.is_kept ? formatBytes(row.size * row.count) : "", row.is_kept ? "" : formatFlops(row.flops), row.place];
        body.push(this.row(cells, "row"));
      }
    }
    by("rows").tBodies[0].replaceChildren(...body);
    by("unfold").textContent = this.open.size ? "fold all" : "unfold all";
    by("matches").textContent = `${plural(sum(rows, (row) => row.count), "value")} in ${plural(rows.length, "row")}`;
  }

  row(cells, kind) {
    return make("tr", cells.map((cell, at) => make("td", cell, at >= 2 && at <= 5 ? {class: "number"} : {})), {class: kind});
  }
}

// -- the curve ---------------------------------------------------------------------------------------------------------

async function showCurve(curve) {
  if (!curve) return;
  by("curve").hidden = by("to-curve").hidden = false;
  const [unit, size] = unitOf(Math.max(...curve.points.map((point) => point.memory)));
  const kinds = {plan: "plans", policy: "policies", chosen: "this plan"};
  const values = curve.points.map((point) => ({...point, memory: point.memory / size, kind: kinds[point.kind], FLOPs: formatFlops(point.flops)}));
  const isMeasured = curve.points.every((point) => point.measured);
  by("curve-hint").textContent = `Time is that of what is computed again, predicted (${curve.device}); memory is ${isMeasured ? "what XLA takes" : "predicted"}. Faded points are dominated: another one takes less of both.`;
  const soft = colour("soft"), rule = colour("rule");
  const x = {field: "memory", type: "quantitative", axis: {title: `temporary memory, ${unit}`, tickCount: 8}, scale: {zero: true}};
  const y = {field: "extra", type: "quantitative", axis: {title: "extra time, %"}};
  const used = ["plan", "policy", "chosen"].filter((kind) => curve.points.some((point) => point.kind === kind));
  const styles = {plan: ["kept", "circle"], policy: ["recomputed", "square"], chosen: ["bad", "diamond"]};
  const domain = used.map((kind) => kinds[kind]);
  const color = {field: "kind", type: "nominal", legend: {title: null, orient: "top"}, scale: {domain, range: used.map((kind) => colour(styles[kind][0]))}};
  const shape = {field: "kind", type: "nominal", scale: {domain, range: used.map((kind) => styles[kind][1])}};
  const spec = {
    width: "container", height: 320, autosize: {type: "fit", contains: "padding"}, background: null, data: {values},
    layer: [
      {transform: [{filter: "datum.kind == 'plans' && !datum.dominated"}], mark: {type: "line", color: colour("kept"), opacity: 0.6}, encoding: {x, y, order: {field: "memory", type: "quantitative"}}},
      {mark: {type: "point", size: 90, filled: true, tooltip: true}, encoding: {x, y, color, shape,
        opacity: {condition: {test: "datum.dominated", value: 0.35}, value: 1},
        tooltip: [{field: "name", title: "what"}, {field: "memory", title: `memory, ${unit}`, format: ".1f"}, {field: "extra", title: "extra time, %", format: ".2f"}, {field: "FLOPs", title: "computed again"}]}},
      ...["policies", "this plan"].map((kind) => [kind, values.filter((value) => (value.name === "everything" ? "policies" : value.kind) === kind)])
        .filter(([, named]) => named.length).map(([kind, named]) => ({
        data: {values: named},
        mark: {type: "text", align: kind === "policies" ? "left" : "center", dx: kind === "policies" ? 9 : 0, dy: kind === "policies" ? -9 : 18, fontSize: 12, color: colour("ink")},
        encoding: {x, y, text: {field: "name"}},
      })),
    ],
    config: {font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif", view: {stroke: null}, legend: {labelColor: colour("ink"), labelFontSize: 12},
      axis: {labelColor: soft, titleColor: soft, gridColor: rule, domainColor: rule, tickColor: rule, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal"}},
  };
  await window.vegaEmbed(by("curve-chart"), spec, {actions: false, renderer: "canvas"});
}

// -- the program's text ------------------------------------------------------------------------------------------------

class Stages {
  constructor(stages) {
    this.limit = LINES;
    for (const stage of stages) {
      const button = make("button", stage.name, {type: "button", "aria-pressed": "false", title: formatBytes(stage.size)});
      button.addEventListener("click", async () => {
        for (const one of by("stage-names").children) one.setAttribute("aria-pressed", String(one === button));
        stage.lines ??= (await unpack(stage.text)).split("\n");
        this.stage = stage;
        this.limit = LINES;
        this.show();
      });
      by("stage-names").append(button);
    }
    by("find").addEventListener("input", () => { this.limit = LINES; this.show(); });
    by("more").addEventListener("click", () => { this.limit += LINES; this.show(); });
    by("stage-names").firstChild?.click();
    if (!stages.length) by("stages").hidden = true;
  }

  show() {
    if (!this.stage) return;
    const wanted = by("find").value.toLowerCase();
    const lines = wanted ? this.stage.lines.filter((line) => line.toLowerCase().includes(wanted)) : this.stage.lines;
    by("stage-text").textContent = lines.slice(0, this.limit).join("\n");
    by("more").hidden = lines.length <= this.limit;
    by("stage-lines").textContent = lines.length > this.limit ? `${this.limit.toLocaleString("en")} of ${plural(lines.length, "line")}` : plural(lines.length, "line");
  }
}

// -- all of it ---------------------------------------------------------------------------------------------------------

function showHead(page) {
  for (const one of page.figures) {
    by("figures").append(make("div", [make("dt", one.label), make("dd", [one.value, make("small", one.note)])]));
  }
  for (const one of page.verdicts) by("verdicts").append(make("li", one.text, one.isBad ? {class: "bad"} : {}));
}

const page = JSON.parse(await unpack(by("data").textContent));
showHead(page);
showFiles(page.files);
new Decisions(page.decisions);
new Stages(page.stages);
const charts = new Charts(page);
const draw = async () => {
  await charts.draw();
  await showCurve(page.curve);
};
if (!page.timelines.length) by("memory").hidden = true;
await draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.body.dataset.ready = "true";
