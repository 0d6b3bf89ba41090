// The memory limits of the recorded run. A cap below 1 GB is refused, as by a run that needs more.
import type { LimitsView, RunRequest } from "../../types";
import type { LimitsHost } from "../limits";
import { machine } from "./standInViews";

let limits: LimitsView = { memory_cap_bytes: null, max_system_fraction: 0.9, total_bytes: machine.total_bytes, leave_least_bytes: 1.5 * 2 ** 30, courtesy: "auto" };

export const changeLimits = (request: RunRequest) => {
  if (typeof request === "string") return;
  if ("leave" in request) limits = { ...limits, max_system_fraction: request.leave.max_system_fraction };
  else if ("courtesy" in request) limits = { ...limits, courtesy: request.courtesy.when };
  else if (request.memory_cap.bytes === null || request.memory_cap.bytes >= 2 ** 30) limits = { ...limits, memory_cap_bytes: request.memory_cap.bytes };
};

export const limitsHost: LimitsHost = { limits: async () => limits };
