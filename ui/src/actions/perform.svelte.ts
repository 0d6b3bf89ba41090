// Performs actions: by the button that does the same, or here if no page has one.
import type { MenuPosition } from "../host/host";
import { host } from "../host/selectHost";
import { go, inspectionHash, resultsHash, route, runHash } from "../route.svelte";
import { attempt, chooseFolder, openRun, openSample, session } from "../appState.svelte";
import type { Language, RunRequest, RunRow } from "../types";
import { t } from "../strings/t";
import { comparable } from "../welcome/runList";
import { actions } from "./actionTable";

const SCALES = [0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75];
const SAVED_SCALE = "text-scale";

class Overlays {
  /** Whether the palette is open. */
  palette = $state(false);
  /** The dialog about a run that is open. */
  dialog = $state.raw<{ kind: keyof typeof import("./dialogs"); row: RunRow } | null>(null);
}
export interface DialogProps {
  row: RunRow;
  /** The dialog has closed. */
  close: () => void;
}
export const overlays = new Overlays();

/** Opens the plan of a run, to change it and train again. */
export const repeat = (run: string) =>
  attempt(async () => {
    const { inspection } = await host.repeatRun(run);
    session.inspectionOf.set(run, inspection);
    session.runOf.set(inspection, run);
    go(inspectionHash(inspection));
  });

const dialog = (kind: keyof typeof import("./dialogs")) => (run: string) =>
  attempt(async () => {
    const row = (await host.runs()).find(({ id }) => id === run);
    overlays.dialog = row ? { kind, row } : null;
  });

const trash = (run: string) =>
  attempt(async () => {
    await host.trashRun(run);
    const at = route();
    if (at.view !== "welcome" && at.id === run) go("#/");
  });

/** Focuses a part of a page, once the page is drawn and its lists are loaded. `missing` is called if
 * the page does not have the part. */
const focus = (selector: string, hash = "#/", missing = () => {}) => {
  go(hash);
  const { view } = route();
  const tryToFocus = (attempts: number) => {
    const part = document.querySelector<HTMLElement>(selector);
    if (part) part.focus();
    else if (route().view !== view) return;
    else if (attempts > 0) setTimeout(tryToFocus, 50, attempts - 1);
    else missing();
  };
  // The palette gives the focus back when it closes.
  setTimeout(tryToFocus, 100, 60);
};

/** Focuses the choice of another run on the results page, or says why there is none. */
const compare = (run: string) =>
  attempt(async () => {
    const rows = await host.runs();
    const own = rows.find(({ id }) => id === run);
    if (!own || comparable(rows, own).length === 0) session.notice = t("No other evaluated run has this task.");
    else focus("#compare", resultsHash(run), () => (session.notice = t("This run has no results yet that can be compared.")));
  });

const scale = () => Number(localStorage.getItem(SAVED_SCALE)) || 1;
const setScale = (factor: number) => {
  localStorage.setItem(SAVED_SCALE, String(factor));
  return host.zoom(factor);
};
/** The next size in a direction, or the last one. */
export const nextScale = (now: number, direction: 1 | -1) => {
  const next = direction > 0 ? SCALES.find((one) => one > now) : SCALES.findLast((one) => one < now);
  return next ?? now;
};
/** Shows the size that was used last. */
export const restoreScale = () => {
  if (scale() !== 1) void host.zoom(scale());
};

/** The page is loaded again in the other language. */
const languageHandler = (choice: Language | null): Handler => ({
  run: () => attempt(async () => {
    await host.setLanguage(choice);
    location.reload();
  }),
  enabled: () => session.welcome?.language_choice !== choice,
});

const active = () => session.machine?.active ?? null;
const control = (request: RunRequest) => () => attempt(() => host.control(active()!.run, request));
const isActive = () => active() !== null;

interface Handler {
  run: (run: string) => unknown;
  enabled?: (run: string | null) => boolean;
}
const always = (run: Handler["run"]): Handler => ({ run });
type Commands = Record<string, () => unknown>;
/** What each part of the page offers now, for example for the class that has the focus. */
const parts = new Set<() => Commands>();
/** Offers actions of a part of the page in the palette. Returns a function that ends this. */
export const offer = (part: () => Commands) => {
  parts.add(part);
  return () => void parts.delete(part);
};
const commandsOfParts = (): Commands => Object.assign({}, ...[...parts].map((part) => part()));

/** About a run: the one whose menu is open, or the one that is shown. */
const aboutRun = (run: Handler["run"], enabled = (id: string) => id !== ""): Handler => ({ run, enabled: (id) => id !== null && enabled(id) });

const handlers: Record<string, Handler> = {
  choose: always(() => chooseFolder()),
  sample: { run: () => openSample(), enabled: () => session.welcome?.sample !== null },
  "import-run": always(async () => (await import("../welcome/importRun")).importRun()),
  palette: always(() => {
    // Now, because the palette takes the focus.
    [offered, offeredAt] = [commandsOfParts(), location.hash];
    overlays.palette = true;
  }),
  find: always(() => focus("#search-runs")),
  recent: { run: () => focus("[data-recent]"), enabled: () => route().view !== "welcome" || document.querySelector("[data-recent]") !== null },
  runs: always(() => go("#/")),
  larger: always(() => setScale(nextScale(scale(), 1))),
  smaller: always(() => setScale(nextScale(scale(), -1))),
  "usual-size": always(() => setScale(1)),
  pause: { run: () => control(active()!.status === "paused" ? "continue" : "pause")(), enabled: isActive },
  checkpoint: { run: control("checkpoint"), enabled: isActive },
  stop: { run: control("stop"), enabled: isActive },
  "show-active": { run: () => go(runHash(active()!.run)), enabled: isActive },
  "open-run": aboutRun(openRun),
  "edit-run": aboutRun(dialog("edit")),
  "train-longer": aboutRun(dialog("longer"), (run) => run !== active()?.run),
  "compare-runs": aboutRun(compare, (run) => run !== active()?.run),
  "repeat-run": aboutRun(repeat),
  "reveal-run": aboutRun((id) => attempt(() => host.reveal({ kind: "run", id }))),
  "trash-run": aboutRun(trash, (run) => run !== active()?.run),
  "language-system": languageHandler(null),
  "language-english": languageHandler("en"),
  "language-german": languageHandler("de"),
  close: always(() => host.closeWindow()),
  quit: always(() => host.quit()),
};

/** The run that is shown, or that has the focus in the list. */
const shownRun = (): string | null => {
  const at = route();
  if (at.view === "welcome") return document.activeElement?.closest<HTMLElement>("[data-run-row]")?.dataset.runRow ?? null;
  return at.view === "plan" ? null : at.id;
};

const buttonOf = (id: string): HTMLElement | null => {
  const selector = actions.find((action) => action.id === id)?.button;
  const button = selector ? document.querySelector<HTMLElement>(selector) : null;
  return button?.matches(":disabled, [aria-disabled=true], [aria-current]") ? null : button;
};

export const isEnabled = (id: string, run: string | null = shownRun()): boolean => {
  const handler = handlers[id];
  return buttonOf(id) !== null || id in commandsOfParts() || (handler !== undefined && (handler.enabled?.(run) ?? true));
};

/** What the items of the open context menu do, if it is not that of a run, or what parts of the
 * page offered when the palette opened. */
let offered: Commands = {};
/** The page that it belongs to: another one has other charts and samples. */
let offeredAt = "";

/** Shows a menu at a place of the page or at the pointer. A larger page has larger pixels than the
 * window. */
const showMenu = (on: string, run: string | null, enabled: string[], at: MenuPosition | null) =>
  attempt(() => host.contextMenu(on, run, enabled, at && { x: at.x * scale(), y: at.y * scale() }));

/** Shows the context menu of a chart, a class or a sample with these actions. */
export const contextMenu = (on: string, commands: Commands, at: MenuPosition | null) => {
  [offered, offeredAt] = [commands, location.hash];
  return showMenu(on, null, Object.keys(commands), at);
};

/** The ids of the actions that can be performed now. */
export const enabledActions = (run: string | null = shownRun()) => actions.filter(({ id }) => isEnabled(id, run)).map(({ id }) => id);

/** Shows the context menu of a run. */
export const runMenu = (run: string, at: MenuPosition | null) => showMenu("run", run, enabledActions(run), at);

export const perform = (id: string, run: string | null = shownRun()) => {
  if (offered[id] && offeredAt === location.hash) return void offered[id]();
  if (!isEnabled(id, run)) return;
  const button = buttonOf(id);
  if (button) button.click();
  else void handlers[id]?.run(run ?? "");
};
