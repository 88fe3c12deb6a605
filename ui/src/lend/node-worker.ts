/* The dedicated worker that is the node: see node.ts. */
import * as gpu from "./gpu";
import type { FromNode, ToNode } from "./messages";
import { Node } from "./node";

const scope = self as unknown as {
  postMessage(message: FromNode): void;
  onmessage: ((event: MessageEvent<ToNode>) => void) | null;
};
const node = new Node(gpu, (message) => scope.postMessage(message));

scope.onmessage = ({ data }) => {
  switch (data.kind) {
    case "start":
      return node.start(data.params);
    case "readings":
      return node.setReadings(data.readings, data.rest);
    case "store":
      return gpu.setStoreLimit(data.limit_bytes);
    case "clear store":
      return void gpu.clearStore();
    case "stop":
      return node.stop();
    case "leave":
      return node.leave();
    case "try_now":
      return node.tryNow();
  }
};
