// A row of the run list can be dragged to another app: a file manager gets the run's folder, and a
// terminal or an editor gets its path.
import { runFolderPath } from "../host/runFolderPath";

export const fileAddress = (path: string): string => `file://${path.split("/").map(encodeURIComponent).join("/")}`;

/** Fills what is dragged with a folder. */
export const fill = (data: Pick<DataTransfer, "setData" | "effectAllowed">, path: string) => {
  data.effectAllowed = "copyLink";
  data.setData("text/uri-list", `${fileAddress(path)}\r\n`);
  data.setData("text/plain", path);
};

/** Makes a row draggable. Its path must be known when the drag begins. */
export const makeDraggable = async (row: HTMLElement, run: string) => {
  if (row.draggable) return;
  const path = await runFolderPath(run).catch(() => null);
  if (!path) return;
  row.draggable = true;
  row.ondragstart = (event) => {
    // The window refuses all other drags.
    event.stopPropagation();
    if (event.dataTransfer) fill(event.dataTransfer, path);
  };
};
