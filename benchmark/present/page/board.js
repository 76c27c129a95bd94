"use strict";
(() => {
  // Which rows and columns of methods × settings are shown.
  const table = document.getElementById("board");
  const inputs = ["methods", "settings", "verified"].map((name) => document.getElementById(`board-${name}`));
  const [methods, settings, verified] = inputs;
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const wordsOf = (input) => input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (cell, words) => words.every((word) => cell.textContent.toLowerCase().includes(word));
  const isFound = (cell) => cell.dataset.v !== undefined && (!verified.checked || cell.dataset.state === "verified");
  const update = () => {
    const columns = heads.map((head, place) => place > 0 && has(head, wordsOf(settings)));
    let count = 0;
    for (const row of rows) {
      const cells = [...row.cells];
      row.hidden = !(has(cells[0], wordsOf(methods)) && cells.some((cell, place) => columns[place] && isFound(cell)));
      count += !row.hidden;
      cells.forEach((cell, place) => {
        if (place) cell.classList.toggle("unverified", verified.checked && !isFound(cell));
      });
    }
    const used = heads.map((_, place) => columns[place] && rows.some((row) => !row.hidden && isFound(row.cells[place])));
    for (const row of [table.tHead.rows[0], ...rows]) {
      [...row.cells].forEach((cell, place) => { if (place) cell.hidden = !used[place]; });
    }
    document.getElementById("board-count").textContent =
      `${count} of ${rows.length} rows, ${used.filter(Boolean).length} of ${heads.length - 1} settings`;
  };
  for (const input of inputs) input.addEventListener("input", update);
  update();

  // A number of the table opens its entry in the list.
  const open = () => {
    const body = document.getElementById(location.hash.slice(1));
    const opener = location.hash.startsWith("#number-") && body?.querySelector("button.open");
    if (!opener) return;
    body.hidden = false;
    if (opener.getAttribute("aria-expanded") !== "true") opener.click();
    body.scrollIntoView();
  };
  window.addEventListener("hashchange", open);
  open();
})();
