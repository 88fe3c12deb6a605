// The main jobs by keyboard alone, in Firefox.
import { byKeyboard } from "./flows.mjs";

byKeyboard("firefox");
