/* German for what the server says. */
import type { Texts } from "../../language";

export default {} as Texts;
