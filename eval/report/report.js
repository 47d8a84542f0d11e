"use strict";

// Lists: a click on a column's head sorts by it, what has no value last in either direction.
function value(row, column) {
  return row.cells[column].dataset.value ?? row.cells[column].textContent;
}
function sort(table, head) {
  const column = head.cellIndex, numeric = head.dataset.kind === "number";
  const before = head.getAttribute("aria-sort");
  const falling = before === "descending" ? false : before === "ascending" ? true : numeric;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const order = (a, b) => numeric ? a - b : a.localeCompare(b, undefined, {numeric: true});
  const rows = [...table.tBodies[0].rows].map(row => [value(row, column), row]);
  rows.sort(([a], [b]) => (a === "") - (b === "") || (a === "" ? 0 : falling ? order(b, a) : order(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}
for (const table of document.querySelectorAll("table.list")) {
  for (const head of table.tHead.rows[0].cells) {
    if (!head.dataset.kind) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, head));
    head.append(button);
    head.classList.add("sort");
  }
  const names = [...new Set([...table.tBodies[0].rows].map(row => row.dataset.run))];
  if (names.length < 2) continue;
  const select = document.createElement("select");
  for (const [run, name] of [["", "all runs"], ...names.map(run => [run, run])]) {
    const option = document.createElement("option");
    option.value = run === "" ? "" : "=" + run;
    option.textContent = name;
    select.append(option);
  }
  select.addEventListener("change", () => {
    for (const row of table.tBodies[0].rows) row.hidden = select.value !== "" && select.value !== "=" + row.dataset.run;
  });
  const label = document.createElement("label");
  label.append("Show ", select);
  const line = document.createElement("p");
  line.className = "controls";
  line.append(label);
  table.parentNode.before(line);
}

// The paper's rows: the prompting strategies that were not asked here are folded away.
for (const body of document.querySelectorAll("tbody[data-group]")) {
  const head = body.rows[0].cells[0], button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  const show = open => {
    button.setAttribute("aria-expanded", open);
    for (const row of [...body.rows].slice(1)) row.hidden = !open;
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  show(body.dataset.open === "true");
}

// Each small picture is in the page once, however many rows show it.
const pictures = JSON.parse(document.getElementById("pictures").textContent);
for (const cell of document.querySelectorAll("[data-picture]")) {
  const picture = document.createElement("img");
  picture.alt = "";
  picture.src = pictures[cell.dataset.picture];
  cell.append(picture);
}
