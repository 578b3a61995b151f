// An agent of the Vercel AI SDK, as its documentation writes one: node agent.mjs MODEL TASK STEPS
import { execSync } from "node:child_process";
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const [model, task, steps] = process.argv.slice(2);
const bash = tool({
  description: "Run a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execSync(command, { encoding: "utf8" }),
});
const { text } = await generateText({
  model: openai(model),
  prompt: task,
  tools: { bash },
  stopWhen: stepCountIs(Number(steps) + 2),
});
console.log(text);
