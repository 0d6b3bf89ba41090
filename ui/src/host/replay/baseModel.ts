// A made-up hub. A look-up and a download end at once; with `?slow`, they do not end. `?hub=` is
// what happens: `none` knows no model, `terms` asks for a token, `large` does not fit into memory,
// `full` not on the disk, `offline` and `broken` fail; with `?cache`, models are on this machine.
import type { HubFitView, HubModelView } from "../../types";
import type { BaseModelHost } from "../baseModel";

const GB = 2 ** 30;
const query = new URLSearchParams(location.search);
const [slow, kind] = [query.has("slow"), query.get("hub")];

const fit: HubFitView = { parameters: 596_000_000, trains: "all", trains_label: "Everything", needed_bytes: 9.1 * GB, available_bytes: null };
const adapters = { ...fit, parameters: 8_030_000_000, trains: "adapter:8", trains_label: "Adapters of rank 8 (LoRA)", needed_bytes: 34 * GB, available_bytes: 9.4 * GB };

const weights = (name: string) => ({ id: "weights-1", name });
const found = [
  { weights: weights("google/vit-base-patch16-224"), kind: "ViT", bytes: 0.32 * GB, is_own: false },
  { weights: { id: "weights-2", name: "facebook/dinov2-small" }, kind: "DINOv2", bytes: 0.08 * GB, is_own: true },
];

let lookedUp: HubModelView | null = null;
const show = (part: Partial<HubModelView>) => {
  if (lookedUp) lookedUp = { ...lookedUp, problem: null, ...part };
};
const offline = "config.json could not be downloaded from https://huggingface.co: the host was not found; check the network, then try again, and the download continues";
const broken = "model.safetensors could not be downloaded from https://huggingface.co: the hub sends no data; check the network, then try again, and the download continues";

const offer = (token: string): Partial<HubModelView> => {
  if (kind === "none") return { step: "failed", problem: "https://huggingface.co answered 404 for org/nothing: the hub has no such model or file; check the spelling of the name" };
  if (kind === "offline") return { step: "failed", problem: offline };
  if (kind === "terms" && !token) return { step: "failed", needs_token: true, problem: "The hub does not give config.json to everyone. Check the spelling of the name. If the model has terms, accept them on its page, then enter your access token here and look the model up again." };
  const large = kind === "large";
  return { step: "offered", licence: large ? null : "apache-2.0", bytes: (large ? 16.1 : 1.4) * GB, done_bytes: 0, free_bytes: (kind === "full" ? 0.6 : 212) * GB, fit: large ? adapters : fit };
};

export const baseModelHost: BaseModelHost = {
  models: async () => ({ found: query.has("cache") ? found : [], hub: "https://huggingface.co", looked_up: lookedUp }),
  chooseGguf: async () => {
    throw { code: "failed", message: "notes.txt is not a GGUF file. Choose a file that ends with .gguf." };
  },
  lookUp: async (_inspection, { name, hub, token }) => {
    if (!/^[\w.-]+\/[\w.-]+$/.test(name)) throw { code: "invalid_setting", message: `“${name}” is not the name of a model on a hub. Such a name has two parts without spaces, for example Qwen/Qwen3-0.6B.` };
    lookedUp = { name, hub, step: "asking", licence: null, bytes: 0, done_bytes: 0, free_bytes: null, fit: null, problem: null, needs_token: false, weights: null };
    if (!slow || kind === "download") show(offer(token));
  },
  download: async () => {
    if (kind === "full") throw { code: "failed", message: "Qwen/Qwen3-0.6B needs 1.4 GB, but only 614 MB are free in Ebb's folder; free up space, then try again, and the download continues" };
    if (slow) show({ step: "downloading", done_bytes: 0.5 * GB });
    else if (kind === "broken") show({ step: "offered", done_bytes: 0.5 * GB, problem: broken });
    else show({ step: "downloaded", done_bytes: lookedUp!.bytes, weights: weights(lookedUp!.name) });
  },
  lookedUp: async () => lookedUp,
  stop: async () => {
    if (lookedUp?.step === "downloading") show({ step: "offered" });
    else lookedUp = null;
  },
};
