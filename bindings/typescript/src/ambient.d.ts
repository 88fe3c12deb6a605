/** Only what is used of Node, so that no package of types is needed. */
declare const process: { versions?: { node?: string } } | undefined;
declare module "ws";
