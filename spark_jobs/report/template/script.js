"use strict";
// The page is whole without this: it adds sorting, copying, a theme of one's own, and numbers under the pointer.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  document.querySelector(".tools").hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  dark.addEventListener("change", label);
  label();

  document.getElementById("print").addEventListener("click", () => print());
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));

  document.querySelectorAll("pre.command").forEach((command) => {
    const box = document.createElement("div");
    const button = document.createElement("button");
    box.className = "copied";
    button.type = "button";
    button.textContent = "Copy";
    command.replaceWith(box);
    box.append(command, button);
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(command);
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Press Ctrl-C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  });
  const unfold = () => {
    const shown = document.getElementById(location.hash.slice(1))?.closest("details");
    if (shown) { shown.open = true; shown.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  unfold();

  const key = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return "";
    const text = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return text !== "" && Number.isFinite(number) ? number : text;
  };
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
  document.querySelectorAll("table.sortable").forEach((table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        [...table.tHead.rows[0].cells].forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => compare(key(a, column), key(b, column)) * (down ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  });

  const tip = document.getElementById("tip");
  const clock = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  document.querySelectorAll("svg[data-shown]").forEach((svg) => {
    const shown = JSON.parse(document.getElementById(svg.dataset.shown).textContent);
    const cursor = svg.querySelector(".cursor");
    const hide = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      if (x < shown.left || x > shown.right) { hide(); return; }
      const place = Math.min(shown.count - 1, Math.floor(((x - shown.left) / (shown.right - shown.left)) * shown.count));
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      tip.replaceChildren();
      const head = document.createElement("strong");
      head.textContent = `${clock(shown.start + place * shown.step)} UTC`;
      tip.append(head);
      shown.rows.forEach((row) => {
        const line = document.createElement("span");
        line.className = row.style;
        line.textContent = `${row.label} ${Math.round(row.values[place]).toLocaleString("en")} ${row.unit}`;
        tip.append(line);
      });
      tip.hidden = false;
      const left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(8, left)}px`;
      tip.style.top = `${Math.max(8, event.clientY - tip.offsetHeight - 12)}px`;
    });
  });
})();
