"use strict";

// What comes from a file becomes text nodes alone; a link is one that we made: to a place in the page or a file near it.
function add(parent, tag, text, name) {
  const element = parent.appendChild(document.createElement(tag));
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}
function addForeign(parent, text) {
  const element = add(parent, "bdi");
  for (const part of text.split(text.length > 20 ? /(?<=[/_])/ : /(?<=\/)/)) {  // where a path, or a long name, may break
    if (element.hasChildNodes()) add(element, "wbr");
    element.append(part);
  }
}
function addButton(parent, text, action) {
  const button = add(parent, "button", text);
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}
function intoButton(element, action) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...element.childNodes);
  button.addEventListener("click", action);
  element.append(button);
  return button;
}
function addPart(parent, part) {
  const [text, name, link] = typeof part === "string" ? [part] : part;
  if (parent.hasChildNodes()) parent.append(" ");
  const element = add(parent, link && /^[#.]/.test(link) ? "a" : "span", undefined, name);
  addForeign(element, text);
  if (element.tagName === "A") {
    element.setAttribute("href", link);
    if (link.startsWith(".")) element.target = "_blank";
  }
}
function addPicture(parent, place) {
  const picture = add(parent, "img");
  picture.alt = "";
  picture.src = pictures[place];
  return picture;
}
const json = id => JSON.parse(document.getElementById(id).textContent);
const counted = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
const collator = new Intl.Collator("en", {numeric: true});
const pictures = json("pictures");

// --- Lists: see cprt/pages/listing.py for what a row holds ---
const isRich = cell => cell !== null && typeof cell === "object" && !Array.isArray(cell);
const values = cell => cell === null ? [] : isRich(cell) ? [].concat(cell.value) : [String(cell)];
const plain = text => text.replace("−", "-").replaceAll(",", "").replace(/^\+/, "");
function words(row) {
  const texts = row.flatMap(cell => isRich(cell) ? [...values(cell), ...cell.lines.flat(2)] : values(cell));
  return texts.join("\n").toLowerCase();
}
const lists = {};

function showList(table) {
  const heads = [...table.tHead.rows[0].cells], names = heads.map(head => head.textContent);
  const kinds = heads.map(head => head.dataset.kind), isNumber = column => /number|level/.test(kinds[column]);
  const {one, many, like, only, value} = table.dataset;
  const size = matchMedia("(max-width: 60rem)").matches ? Math.min(20, table.dataset.size) : Number(table.dataset.size);
  let rows = json(`${like ?? table.id}-rows`), found = rows, page = 0, searched = "";
  if (only !== undefined) rows = rows.filter(row => values(row[only]).includes(value));
  const texts = new Map(), selects = new Map();
  const controls = document.createElement("div"), turning = document.createElement("div");
  controls.className = "controls";
  turning.className = "turning";
  table.parentNode.before(controls);
  table.after(turning);

  // Filters, each with the values that the others leave.
  function fits(row, except) {
    for (const [column, select] of selects) {
      if (column !== except && select.value && !values(row[column]).includes(select.value.slice(1))) return false;
    }
    if (!searched) return true;
    if (!texts.has(row)) texts.set(row, words(row));
    return searched.split(/\s+/).every(word => texts.get(row).includes(word));
  }
  function offer(column, select) {
    const counts = new Map(), kept = select.value;
    for (const row of rows) {
      if (fits(row, column)) for (const name of values(row[column])) counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    if (kept && !counts.has(kept.slice(1))) counts.set(kept.slice(1), 0);
    select.replaceChildren();
    add(select, "option", "all").value = "";
    for (const name of [...counts.keys()].sort(collator.compare)) {
      add(select, "option", `${name} (${counts.get(name).toLocaleString("en")})`).value = "=" + name;
    }
    select.value = kept;
  }
  function choose(column, name) {
    for (const [other, select] of selects) {
      select.value = "";
      if (other === column) {
        add(select, "option", name).value = "=" + name;
        select.value = "=" + name;
      }
    }
    change();
  }
  function change() {
    page = 0;
    for (const [column, select] of selects) offer(column, select);
    draw();
  }

  // Order: what has no value comes last in either direction.
  function sort(column, falling) {
    const key = row => isNumber(column) ? parseFloat(plain(values(row[column])[0] ?? "")) : values(row[column]).join(", ");
    const keys = new Map(rows.map(row => [row, key(row)])), empty = one => one === "" || Number.isNaN(one);
    const compare = isNumber(column) ? (a, b) => a - b : collator.compare;
    rows.sort((first, second) => {
      const a = keys.get(first), b = keys.get(second);
      return empty(a) - empty(b) || (empty(a) ? 0 : falling ? compare(b, a) : compare(a, b));
    });
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", falling ? "descending" : "ascending");
    order.value = `${column} ${falling}`;
    page = 0;
    draw();
  }

  // Rows
  function draw() {
    found = rows.filter(row => fits(row));
    const pages = Math.max(1, Math.ceil(found.length / size)), first = page * size;
    body.replaceChildren(...found.slice(first, first + size).map(line));
    count.textContent = counted(found.length, one, many);
    turning.hidden = pages === 1;
    const to = Math.min(first + size, found.length).toLocaleString("en");
    place.textContent = `${(first + 1).toLocaleString("en")} to ${to} of ${counted(found.length, one, many)}`;
    back.disabled = page === 0;
    forth.disabled = page === pages - 1;
  }
  function line(row) {
    const element = document.createElement("tr");
    for (const [column, content] of row.entries()) {
      if (heads[column].hidden) continue;
      const place = add(element, kinds[column] === "id" ? "th" : "td", undefined, kinds[column]);
      if (kinds[column] === "id") place.scope = "row";
      place.dataset.head = names[column];
      if (content === null) place.classList.add("empty");
      else if (kinds[column] === "pictures") for (const one of [].concat(content)) addPicture(place, one);
      else if (isRich(content)) {
        for (const parts of content.lines) {
          const line = add(place, "div");
          for (const part of parts) addPart(line, part);
        }
        if ("picture" in content) {
          const picture = addPicture(place, content.picture), link = place.querySelector("a");
          if (link) {  // the link beside it leads there, for the keyboard too
            picture.className = "linked";
            picture.addEventListener("click", () => link.click());
          }
        }
      } else if (kinds[column] === "level") add(place, "span", content, `badge level-${content}`);
      else if (kinds[column] === "number") add(place, "span", content);
      else addForeign(place, content);
    }
    return element;
  }
  function turn(by) {
    page += by;
    draw();
    controls.scrollIntoView({block: "nearest"});
  }

  function save() {
    const kept = kinds.flatMap((kind, column) => kind === "pictures" ? [] : [column]);
    const field = (text, number) => {
      if (number) text = text === "–" ? "" : plain(text);
      else if (/^[=+\-@\t\r]/.test(text)) text = "'" + text;  // no formula to a spreadsheet
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [kept.map(column => field(names[column])).join(",")];
    for (const row of found) {
      lines.push(kept.map(column => field(values(row[column]).join("; "), isNumber(column))).join(","));
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], {type: "text/csv"}));
    link.download = `${table.id}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  const body = table.tBodies[0], order = document.createElement("select");
  add(order, "option", "as listed").hidden = true;
  for (const [column, head] of heads.entries()) {
    if (!like && head.dataset.choose !== undefined && new Set(rows.flatMap(row => values(row[column]))).size > 1) {
      const label = add(controls, "label", `${names[column]} `), select = add(label, "select");
      select.addEventListener("change", change);
      selects.set(column, select);
    }
    if (head.hidden || kinds[column] === "pictures") continue;
    head.classList.add("sort");
    intoButton(head, () => {
      const before = head.getAttribute("aria-sort");
      sort(column, before ? before === "ascending" : isNumber(column));
    });
    add(order, "option", `${names[column]}, the least first`).value = `${column} false`;
    add(order, "option", `${names[column]}, the most first`).value = `${column} true`;
  }
  order.addEventListener("change", () => sort(...order.value.split(" ").map((part, place) => place ? part === "true" : Number(part))));
  if (!like) {
    const search = add(add(controls, "label", "Search "), "input");
    search.type = "search";
    search.addEventListener("input", () => {
      searched = search.value.trim().toLowerCase();
      change();
    });
    const sorting = add(controls, "label", "Order ", "narrow");
    sorting.append(order);
  }
  const saving = add(controls, "span", undefined, "saving"), count = add(saving, "output", "", "count");
  if (!like) addButton(saving, "CSV", save);
  const back = addButton(turning, "‹ back", () => turn(-1)), place = add(turning, "span");
  const forth = addButton(turning, "next ›", () => turn(1));
  const sorted = heads.findIndex(head => head.hasAttribute("aria-sort"));
  if (sorted >= 0) order.value = `${sorted} true`;
  lists[table.id] = {choose};
  change();
}
document.querySelectorAll("table.list").forEach(showList);

// A tile counts rows of a list; a click shows them.
for (const tile of document.querySelectorAll("[data-list]")) {
  const {list, column, value} = tile.dataset;
  intoButton(tile, () => {
    lists[list].choose(Number(column), value);
    document.getElementById(list).parentNode.previousElementSibling.scrollIntoView();
  });
}

// Rows of a table that are folded away.
for (const body of document.querySelectorAll("tbody[data-group]")) {
  const show = open => {
    button.setAttribute("aria-expanded", open);
    for (const row of [...body.rows].slice(1)) row.hidden = !open;
  };
  const button = intoButton(body.rows[0].cells[0], () => show(button.getAttribute("aria-expanded") !== "true"));
  show(body.dataset.open === "true");
}

// One photo as every run judged it: answers[photo] holds a list of parts a run.
function showPhoto(dialog) {
  const photos = json("photos-answers");
  const open = number => location.hash = `photo-${number}`;
  function draw(number) {
    const {id, picture, truth, answers} = photos[number];
    dialog.replaceChildren();
    const line = add(dialog, "div", undefined, "turning");
    addButton(line, "‹ back", () => open(number - 1)).disabled = number === 0;
    add(line, "span", `${(number + 1).toLocaleString("en")} of ${counted(photos.length, "photo", "photos")}`);
    addButton(line, "next ›", () => open(number + 1)).disabled = number === photos.length - 1;
    addButton(line, "close", () => dialog.close());
    add(add(dialog, "h2"), "bdi", id);
    if (picture !== null) addPicture(dialog, picture);
    for (const [name, parts, text] of [["Truth", truth], ...answers]) {
      const block = add(dialog, "section");
      add(add(block, "h3"), "bdi", name);
      const said = add(block, "p");
      const heads = Array.isArray(parts[0]) && parts[0][1].startsWith("badge") ? ["level", "score", name === "Truth" ? "" : "error"] : [];
      for (const [place, part] of parts.entries()) {
        if (heads[place]) addPart(said, [heads[place], "quiet"]);
        addPart(said, part);
      }
      if (text) add(block, "pre", text);
    }
  }
  function follow() {
    const number = Number(location.hash.match(/^#photo-(\d+)$/)?.[1] ?? NaN);
    if (!(number < photos.length)) return dialog.close();
    draw(number);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }
  dialog.addEventListener("close", () => history.replaceState(null, "", location.href.split("#")[0]));
  addEventListener("hashchange", follow);
  follow();
}
document.querySelectorAll("dialog").forEach(showPhoto);

// A page of many sections opens with their names.
const sections = document.querySelectorAll("main > h2");
if (sections.length > 3) {
  const contents = document.createElement("nav");
  contents.className = "contents";
  contents.ariaLabel = "Sections";
  sections.forEach((section, number) => {
    section.id ||= `section-${number}`;
    add(contents, "a", section.textContent).setAttribute("href", `#${section.id}`);
  });
  document.querySelector("header").after(contents);
}

// Light or dark, against what the system says.
const theme = addButton(document.querySelector("header"), "", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  for (const source of document.querySelectorAll("source")) source.media = isDark() ? "all" : "not all";
  name();
});
const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const name = () => theme.textContent = isDark() ? "light theme" : "dark theme";
theme.className = "theme";
name();
