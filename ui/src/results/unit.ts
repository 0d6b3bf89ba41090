import { translate } from "../strings/t";
import type { ReportView } from "../types";

/** The unit of a result. The name of a target stays as it is. */
export const unitOf = ({ unit, targets }: ReportView): string => (targets.length > 0 ? unit : translate(unit));
