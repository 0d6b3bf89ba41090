// What the data page asks of the program. It is apart from the other requests, so that it is loaded
// with the page.
import type { ConversationView, DataChoices, DataFile, DataSampleView, DataView, DrawnView, DuplicatesView, FirstSampleView, PlanSettings } from "../types";
import { invoke } from "./tauri";

export interface DataHost {
  data(inspection: string): Promise<DataView>;
  /** Samples of one class, from the one at place `from` within the class. */
  samples(inspection: string, cls: number, from: number, count: number): Promise<DataSampleView[]>;
  /** Up to eight images or three texts of different classes. */
  firstSamples(inspection: string): Promise<FirstSampleView[]>;
  /** The first conversations as the model of these settings reads them; none for other data. */
  conversations(inspection: string, settings: PlanSettings): Promise<ConversationView[]>;
  /** A JPEG. */
  thumbnail(inspection: string, sample: number): Promise<ArrayBuffer>;
  /** Shows a file in the file manager. */
  reveal(inspection: string, file: DataFile): Promise<void>;
  /** Changes what of the folder is used. The inspection follows. */
  choose(inspection: string, choices: DataChoices): Promise<void>;
  /** How far the search for duplicates is; `start` starts it. */
  duplicates(inspection: string, start: boolean): Promise<DuplicatesView>;
  /** Draws the first ten images of a run. */
  draw(inspection: string, settings: PlanSettings): Promise<DrawnView[]>;
  /** One of the images that were drawn last. A JPEG. */
  drawn(inspection: string, place: number): Promise<ArrayBuffer>;
}

const app: DataHost = {
  data: (inspection) => invoke("data", { inspection }),
  samples: (inspection, cls, from, count) => invoke("data_samples", { inspection, class: cls, from, count }),
  firstSamples: (inspection) => invoke("first_samples", { inspection }),
  conversations: (inspection, settings) => invoke("conversations", { inspection, settings }),
  thumbnail: (inspection, sample) => invoke("data_thumbnail", { inspection, sample }),
  reveal: (inspection, file) => invoke("reveal_file", { inspection, file }),
  choose: (inspection, choices) => invoke("choose_data", { inspection, choices }),
  duplicates: (inspection, start) => invoke("data_duplicates", { inspection, start }),
  draw: (inspection, settings) => invoke("draw_samples", { inspection, settings }),
  drawn: (inspection, place) => invoke("drawn_sample", { inspection, place }),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const dataHost: DataHost = replays ? (await import("./replay/standInData")).dataHost : app;
