// Draws the page; the last of the scripts.

beginTheme();
document.body.append(tip);
const main = document.getElementById("main");
if (!document.querySelector("#headline dt")) headline();
if (DATA.kind === "bench") benchPage(main);
else if (DATA.kind === "runs") runsPage(main);
else runPage(main);
contents(main);
document.documentElement.dataset.drawn = "yes";
if (DATA.live || DATA.kind === "runs") beginLive(main);
