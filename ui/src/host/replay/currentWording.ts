// Made-up sentences in the words that Rust has by now. The English pictures keep the earlier ones;
// for German there are only the present ones.
const present: Record<string, string> = {
  "Training here, epoch 17 of 30": "Training, epoch 17 of 30",
  "Ended early; the checkpoint of step 400 is saved": "Ended early at step 412: the process exited",
  "twice the image size": "doppelte Bildgröße",
  "One subfolder per class.": "One sub-folder per class.",
  "The file is cut off after 12 of 48 kB. Copy it again to use it.": "The image cannot be decoded (the file ends too early). Copy the file here again, or remove it.",
  "It is 72 times wider than high; the limit is 50.": "The image has 3,600 x 50 pixels; aspect ratios beyond 1:50 are not supported. Crop the image.",
  "Ebb cannot read HEIC. Save it as JPEG or PNG.": "The file is not a JPEG, PNG or WebP image. Copy the image here again, or save it in one of these formats.",
  "The two smallest classes have 40 images each, less than half of the largest.": 'The class "ibis" is small: 40 images. The largest, "airplanes", has 90.',
  "227 of 243 images. With this many, the true value is likely between 89.6 and 95.9 %.": "227 of 243 images. With this many samples, the true accuracy is likely between 89.6 and 95.9 %.",
};
const german = new URLSearchParams(globalThis.location?.search).get("language") === "de";

export const inCurrentWording = <T>(view: T): T => (german ? (JSON.parse(JSON.stringify(view), (_, value: unknown) => (typeof value === "string" ? (present[value] ?? value) : value)) as T) : view);
