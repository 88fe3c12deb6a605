/* Flags of WebGPU (https://www.w3.org/TR/webgpu/), which TypeScript's library has as types only. */
export const USAGE = {
  MAP_READ: 0x1,
  COPY_SRC: 0x4,
  COPY_DST: 0x8,
  UNIFORM: 0x40,
  STORAGE: 0x80,
  QUERY_RESOLVE: 0x200,
} as const;
export const MAP_READ = 0x1;
export const STAGE_COMPUTE = 0x4;
