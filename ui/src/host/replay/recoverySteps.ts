// Made-up recovery steps: those of a plan that does not fit, and with `?short` those of the run.
import type { RecoveryView } from "../../types";
import type { RecoveryHost } from "../recoverySteps";

const steps = (first: string, second: string): RecoveryView[] => [
  { title: "Train at 128 px instead of 224 px", price: `Saves about ${first}. Small details of the images are lost, which may cost accuracy.`, setting: "resolution", value: "128", needs: null },
  { title: "Store the optimizer's moments in 8 bits", price: `Saves about ${second} and takes 5 % more time. The moments are rounded; the result differs slightly.`, setting: "optimizer", value: "adamw8bit", needs: null },
];

export const stepsOfPlan = steps("3.7 GB, which is enough", "33 MB of the missing 3.6 GB");

export const recoveryHost: RecoveryHost = {
  options: async () => (new URLSearchParams(location.search).has("short") ? steps("3.2 GB at a micro-batch of 16", "33 MB at a micro-batch of 16") : []),
};
