"use strict";
(() => {
  // Theme: as the system has it, or the one that was chosen.
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const themes = ["automatic", "light", "dark"];
  const keep = (theme) => { try { localStorage.setItem("pfl-theme", theme); } catch { /* not kept, then */ } };
  const kept = () => { try { return localStorage.getItem("pfl-theme"); } catch { return null; } };
  const show = (theme) => {
    if (theme === "automatic") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = themes.includes(kept()) ? kept() : "automatic";
  show(theme);
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    keep(theme);
  });

  // Sorting: numbers first and by value, then words; what is missing stays last. A third click undoes it.
  const words = new Intl.Collator("en", { numeric: true });
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    if (cell.dataset.v !== undefined) return [0, Number(cell.dataset.v)];
    return text === "" || text === "–" ? [2, 0] : [1, text];
  };
  const compare = ([kind, one], [other, two], sign) => {
    if (kind !== other || kind === 2) return kind - other;
    return sign * (kind === 0 ? one - two : words.compare(one, two));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    // A run is a body of its own: the row and what it opens stay together.
    const bodies = [...table.tBodies];
    const parent = bodies.length > 1 ? table : bodies[0];
    const groups = bodies.length > 1 ? bodies : [...bodies[0].rows];
    const rowOf = (group) => group.rows?.[0] ?? group;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" };
      const order = next[head.getAttribute("aria-sort") ?? "none"];
      for (const each of heads) each.removeAttribute("aria-sort");
      const sorted = [...groups];
      if (order !== "none") {
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const keys = new Map(groups.map((group) => [group, key(rowOf(group), column)]));
        sorted.sort((one, two) => compare(keys.get(one), keys.get(two), sign));
      }
      table.classList.toggle("sorted", order !== "none");
      parent.append(...sorted);
    }));
  }

  // What is folded opens for links to it, and for printing.
  const unfold = () => {
    const target = document.getElementById(location.hash.slice(1));
    for (let node = target; node; node = node.parentElement) if (node.matches("details")) node.open = true;
    target?.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  unfold();
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  window.addEventListener("afterprint", () => { for (const one of closed) one.open = false; });

  // Runs: what a row opens, and the search.
  for (const opener of document.querySelectorAll("button.open")) {
    opener.addEventListener("click", () => {
      const opened = opener.getAttribute("aria-expanded") === "true";
      opener.setAttribute("aria-expanded", String(!opened));
      document.getElementById(opener.getAttribute("aria-controls")).hidden = opened;
    });
  }
  const filter = document.getElementById("filter");
  if (filter) {
    const runs = [...document.querySelectorAll(".runs tbody")];
    const what = document.getElementById("filtered").textContent.split(" ").at(-1);
    const texts = runs.map((run) => [...run.rows[0].cells]
      .map((cell) => cell.textContent).concat(run.dataset.words).join(" ").toLowerCase());
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      runs.forEach((run, place) => {
        run.hidden = !wanted.every((word) => texts[place].includes(word));
        count += !run.hidden;
      });
      document.getElementById("filtered").textContent = `${count} of ${runs.length} ${what}`;
    });
  }
})();
