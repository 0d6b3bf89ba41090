// The context menus of charts, classes and samples, and the drag of a run's row.
import { beforeEach, expect, test, vi } from "vitest";
import { actions } from "../src/actions/actionTable";
import type { Colors } from "../src/chart/canvasTheme";
import { noTops, prepareScene } from "../src/chart/scene";
import { defaultOptions } from "../src/chart/viewOptions";
import type { ClassResultView, PullHeader, ReportView } from "../src/types";
import { pack, unpack } from "../src/unpackPull";

const asked: unknown[][] = [];
vi.stubGlobal("location", { hash: "#/" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("HTMLElement", class {});
const page = { activeElement: null as unknown, querySelector: () => null };
vi.stubGlobal("document", page);
/** An event with its place, as browsers make it. */
class PlacedEvent extends Event {
  clientX: number;
  clientY: number;
  constructor(type: string, options: MouseEventInit = {}) {
    super(type, options);
    [this.clientX, this.clientY] = [options.clientX ?? 0, options.clientY ?? 0];
  }
}
vi.stubGlobal("MouseEvent", PlacedEvent);
/** The text scale that is saved. */
let scale: string | null = null;
vi.stubGlobal("localStorage", { getItem: () => scale });
vi.stubGlobal("window", { __TAURI_INTERNALS__: {} });
const writeText = vi.fn(async (_text: string) => {});
vi.stubGlobal("navigator", { clipboard: { writeText } });
vi.mock("../src/host/selectHost", () => ({ host: { contextMenu: async (...menu: unknown[]) => void asked.push(menu) } }));

const { isEnabled, perform, runMenu } = await import("../src/actions/perform.svelte");
const { menuPosition, onMenuKey } = await import("../src/shell/nativeBehavior");
const { classCommands, classMenu, offerFocused, sampleCommands, sampleMenu } = await import("../src/actions/partMenus");
const { fileAddress, fill } = await import("../src/welcome/dragRun");
const { chartCommands } = await import("../src/training/chartMenu");
const idsOf = (on: string) => actions.filter((action) => action.on === on).map(({ id }) => id);

const row = (name: string): ClassResultView => ({ name, samples: 10, correct: 7, precision: 0.875, recall: 0.7, f1: null });
const classes = ["jay", "owl", "wren"].map(row);
const report = { classes, confusion: [[0, 0, 7], [0, 1, 1], [0, 2, 2], [1, 1, 10]] } as unknown as ReportView;
/** A click of the pointer. */
const event = () => ({ preventDefault: vi.fn(), isTrusted: true }) as unknown as MouseEvent;

/** An element with this place. */
const focusedAt = (left: number, top: number, width: number, height: number, dispatchEvent: (event: MouseEvent) => unknown) => ({
  getBoundingClientRect: () => ({ left, top, width, height }),
  dispatchEvent,
});

beforeEach(() => {
  asked.length = 0;
  writeText.mockClear();
});

test("every item of a menu is an action of the table, in every menu", () => {
  const shown = { scene: {} as never, ms: 0, panels: {} as HTMLElement, zoomTo: () => {} };
  expect(Object.keys(chartCommands(shown))).toEqual(idsOf("chart"));
  expect(Object.keys(classCommands(report, classes[0]!, () => {}))).toEqual(idsOf("class"));
  expect(Object.keys(sampleCommands("jay/1.jpg", () => {}))).toEqual(idsOf("sample"));
});

test("the menu of a class shows its samples and copies its row", () => {
  const selected: unknown[] = [];
  const opened = event();
  classMenu(opened, report, classes[0]!, (cell) => selected.push(cell));
  expect(opened.preventDefault).toHaveBeenCalled();
  expect(asked).toEqual([["class", null, idsOf("class"), null]]);
  perform("class-right");
  perform("class-mistake");
  expect(selected).toEqual([[0, 0], [0, 2]]);
  perform("copy-class");
  expect(writeText).toHaveBeenCalledWith("jay\t10\t87.5 %\t70.0 %\t–");
});

test("the palette offers the actions of the class that has the focus", () => {
  const items = [{ closest: () => null }, { closest: () => null }];
  const list = { children: items.map((item) => ({ contains: (other: unknown) => other === item })) } as unknown as Element;
  const end = offerFocused(() => list, (place) => classCommands(report, classes[place]!, () => {}));
  expect(isEnabled("copy-class")).toBe(false);
  page.activeElement = items[0];
  perform("palette");
  page.activeElement = items[1];
  perform("copy-class");
  expect(writeText).toHaveBeenLastCalledWith("jay\t10\t87.5 %\t70.0 %\t–");
  perform("palette");
  expect(isEnabled("class-mistake"), "the second class has no mistake").toBe(false);
  perform("copy-class");
  expect(writeText).toHaveBeenLastCalledWith(expect.stringContaining("owl"));
  end();
  expect(isEnabled("copy-class")).toBe(false);
  page.activeElement = null;
});

test("the menu key and Shift+F10 open the menu of what has the focus", () => {
  const opened: string[] = [];
  page.activeElement = focusedAt(0, 0, 10, 10, ({ type, bubbles }) => opened.push(`${type} ${bubbles}`));
  const press = (key: string, more: Partial<KeyboardEvent> = {}) => {
    const pressed = { key, shiftKey: false, repeat: false, preventDefault: vi.fn(), ...more };
    onMenuKey(pressed as unknown as KeyboardEvent);
    return pressed.preventDefault;
  };
  expect(press("F10")).not.toHaveBeenCalled();
  expect(opened).toEqual([]);
  expect(press("F10", { shiftKey: true })).toHaveBeenCalled();
  press("ContextMenu");
  press("ContextMenu", { repeat: true });
  expect(opened).toEqual(["contextmenu true", "contextmenu true"]);
  page.activeElement = Object.assign(new HTMLElement(), { closest: () => ({}) });
  expect(press("ContextMenu"), "a text has the system's menu").not.toHaveBeenCalled();
  page.activeElement = null;
});

test("the menu key opens the menu beside what has the focus, on a larger page, too", () => {
  const press = (left: number, top: number, width: number, height: number) => {
    page.activeElement = focusedAt(left, top, width, height, (sent) => {
      // The test's events have no place of their own.
      classMenu({ ...sent, isTrusted: false, preventDefault: () => {} }, report, classes[1]!, () => {});
      runMenu("r4", menuPosition({ ...sent, isTrusted: false }));
    });
    onMenuKey({ key: "ContextMenu", repeat: false, preventDefault: () => {} } as unknown as KeyboardEvent);
    return asked.splice(0).map((menu) => [menu[0], menu[3]]);
  };
  expect(press(20, 300, 400, 30)).toEqual([["class", { x: 20, y: 330 }], ["run", { x: 20, y: 330 }]]);
  scale = "1.5";
  expect(press(20, 100, 400, 600)[0]).toEqual(["class", { x: 330, y: 600 }]);
  scale = null;
  page.activeElement = null;
});

test("an item does nothing once another page is shown", () => {
  const reveal = vi.fn();
  sampleMenu(event(), "jay/1.jpg", reveal);
  location.hash = "#/results/other";
  perform("reveal-sample");
  location.hash = "#/";
  expect(reveal).not.toHaveBeenCalled();
});

test("a class without a mistake has no item for mistakes", () => {
  classMenu(event(), report, classes[1]!, () => {});
  expect(asked).toEqual([["class", null, ["class-right", "copy-class"], null]]);
});

test("the menu of a sample shows its file, and copies its name", () => {
  const reveal = vi.fn();
  sampleMenu(event(), "jay/image 1.jpg", reveal);
  expect(asked).toEqual([["sample", null, ["reveal-sample", "copy-sample"], null]]);
  perform("reveal-sample");
  expect(reveal).toHaveBeenCalledOnce();
  perform("copy-sample");
  expect(writeText).toHaveBeenCalledWith("image 1.jpg");
  const text = Object.assign(new HTMLElement(), { closest: () => ({}) });
  sampleMenu({ preventDefault: vi.fn(), target: text } as unknown as MouseEvent, "reviews.csv", reveal);
  expect(asked).toHaveLength(1);
  sampleMenu(event(), "", reveal);
  expect(asked.at(-1)).toEqual(["sample", null, ["reveal-sample"], null]);
});

test("a system that refuses the clipboard is named", async () => {
  const { session } = await import("../src/appState.svelte");
  writeText.mockRejectedValueOnce(new Error("NotAllowedError"));
  sampleMenu(event(), "jay/1.jpg", () => {});
  session.error = null;
  perform("copy-sample");
  await vi.waitFor(() => expect(session.error).toBe("The text could not be copied, because the system refused it."));
});

test("the menu of the charts copies the values under the cursor", () => {
  const header = { marks: [], spans: [], started: { total_bytes: 2 ** 34, effective_batch: 16 }, figures: {} } as unknown as PullHeader;
  const pull = unpack(pack(header, { "micro.at": [0, 60_000], "micro.value": [4, 8], "loss.at": [0, 60_000], "loss.raw": [2, 1.5] }));
  const scene = prepareScene(pull, { fromMs: 0, toMs: 60_000 }, {} as Colors, noTops(), defaultOptions);
  chartCommands({ scene, ms: 60_000, panels: {} as HTMLElement, zoomTo: () => {} })["copy-values"]();
  const rows = writeText.mock.calls[0]![0].split("\n");
  expect(rows[0]).toBe("Time\t1:00");
  expect(rows).toContain("Micro-batch\t8");
  expect(rows).toContain("Loss\t1.50");
});

test("the whole run is shown from the menu of the charts", () => {
  const zoomTo = vi.fn();
  chartCommands({ scene: {} as never, ms: 0, panels: {} as HTMLElement, zoomTo })["whole-run"]();
  expect(zoomTo).toHaveBeenCalledWith({ follow: true, lengthMs: expect.any(Number) });
});

test("a dragged run is a folder for file managers and a path for texts", () => {
  const data = new Map<string, string>();
  const transfer = { effectAllowed: "none" as DataTransfer["effectAllowed"], setData: (type: string, value: string) => void data.set(type, value) };
  fill(transfer, "/home/Ann/Ebb runs/100 % birds");
  expect(Object.fromEntries(data)).toEqual({
    "text/uri-list": "file:///home/Ann/Ebb%20runs/100%20%25%20birds\r\n",
    "text/plain": "/home/Ann/Ebb runs/100 % birds",
  });
  expect(transfer.effectAllowed).toBe("copyLink");
  expect(fileAddress("/a#b?c")).toBe("file:///a%23b%3Fc");
});
