// Draws the page; the last of the scripts.

beginTheme();
document.body.append(tip);
const main = document.getElementById("main");
(DATA.kind === "bench" ? benchPage : runPage)(main);
contents(main);
document.documentElement.dataset.drawn = "yes";
