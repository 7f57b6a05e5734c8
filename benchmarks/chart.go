package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A chart is lines over a logarithmic axis.
type chart struct {
	name   string // of its file
	title  string
	x, y   string // what the axes are
	points []float64
	lines  []line
	log    bool // the y axis too
}

type line struct {
	name   string
	values []float64 // one a point
}

const (
	chartWidth, chartHeight = 720, 400
	left, right             = 64, 190 // margins: the right one for the names
	top, bottom             = 44, 52
)

// Of Okabe and Ito, for those who see colours differently; the last for the dark.
var lineColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"}

const chartStyle = `<style>
text{font:13px sans-serif;fill:#24292f}
.title{font-size:15px;font-weight:600}
.axis{stroke:#57606a;fill:none}
.grid{stroke:#d0d7de;fill:none}
.line{fill:none;stroke-width:2}
.back{fill:#ffffff}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#9198a1}.grid{stroke:#3d444d}.back{fill:#0d1117}}
</style>
`

// SVG draws the chart, to be read on light and on dark.
func (c chart) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n%s",
		chartWidth, chartHeight, html.EscapeString(c.title), chartStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d"/>`+"\n", chartWidth, chartHeight)
	text(&b, left, 24, "start", "title", c.title)
	c.drawAxes(&b)
	c.drawLines(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

func text(b *strings.Builder, x, y float64, anchor, class, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(s))
}

func (c chart) drawAxes(b *strings.Builder) {
	for _, tick := range c.yTicks() {
		y := c.yAt(tick)
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%d"/>`+"\n", left, y, chartWidth-right)
		text(b, left-8, y+4, "end", "", figure(tick))
	}
	for _, p := range c.points {
		text(b, c.xAt(p), chartHeight-bottom+18, "middle", "", figure(p))
	}
	fmt.Fprintf(b, `<path class="axis" d="M%d %dV%dH%d"/>`+"\n", left, top, chartHeight-bottom, chartWidth-right)
	text(b, (left+chartWidth-right)/2, chartHeight-12, "middle", "", c.x)
	fmt.Fprintf(b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+chartHeight-bottom)/2, html.EscapeString(c.y))
}

func (c chart) drawLines(b *strings.Builder) {
	labels := c.labelPlaces()
	for i, l := range c.lines {
		colour := lineColours[i%len(lineColours)]
		var path []string
		for k, v := range l.values {
			path = append(path, fmt.Sprintf("%.1f %.1f", c.xAt(c.points[k]), c.yAt(v)))
		}
		fmt.Fprintf(b, `<path class="line" stroke="%s" d="M%s"/>`+"\n", colour, strings.Join(path, "L"))
		for _, p := range path {
			x, y, _ := strings.Cut(p, " ")
			fmt.Fprintf(b, `<circle r="3" fill="%s" cx="%s" cy="%s"/>`, colour, x, y)
		}
		last := c.yAt(l.values[len(l.values)-1])
		fmt.Fprintf(b, "\n"+`<path stroke="%s" fill="none" d="M%d %.1fL%d %.1f"/>`+"\n", colour, chartWidth-right+2, last, chartWidth-right+16, labels[i])
		text(b, chartWidth-right+20, labels[i]+4, "start", "", l.name)
	}
}

// labelPlaces is where the names of the lines stand: beside their ends, and apart.
func (c chart) labelPlaces() []float64 {
	const apart = 17
	order := make([]int, len(c.lines))
	places := make([]float64, len(c.lines))
	for i, l := range c.lines {
		order[i], places[i] = i, c.yAt(l.values[len(l.values)-1])
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, places[b]-places[a])) })
	lowest := float64(chartHeight - bottom)
	for _, i := range order {
		places[i] = min(places[i], lowest)
		lowest = places[i] - apart
	}
	return places
}

func (c chart) xAt(x float64) float64 {
	first, last := math.Log(c.points[0]), math.Log(c.points[len(c.points)-1])
	return left + (chartWidth-left-right)*(math.Log(x)-first)/(last-first)
}

func (c chart) yAt(y float64) float64 {
	ticks := c.yTicks()
	share := y / ticks[len(ticks)-1]
	if c.log {
		first := math.Log(ticks[0])
		share = (math.Log(y) - first) / (math.Log(ticks[len(ticks)-1]) - first)
	}
	return chartHeight - bottom - (chartHeight-top-bottom)*share
}

// yTicks is round numbers that all values lie between.
func (c chart) yTicks() (ticks []float64) {
	lowest, highest := math.Inf(1), 0.0
	for _, l := range c.lines {
		lowest, highest = min(lowest, slices.Min(l.values)), max(highest, slices.Max(l.values))
	}
	if c.log {
		for e := math.Floor(math.Log2(lowest)); len(ticks) < 2 || ticks[len(ticks)-1] < highest; e++ {
			ticks = append(ticks, math.Exp2(e))
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(highest)))
	for _, finer := range []float64{2, 2.5} {
		if highest/step < 4 {
			step /= finer
		}
	}
	for i := 0; len(ticks) < 2 || ticks[len(ticks)-1] < highest; i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}

// table is the same in numbers.
func (c chart) table() table {
	t := table{caption: c.title + ": " + c.y + ", by " + c.x + "."}
	for _, p := range c.points {
		t.columns = append(t.columns, figure(p))
	}
	for _, l := range c.lines {
		var cells []string
		for _, v := range l.values {
			cells = append(cells, figure(v))
		}
		t.add(l.name, cells...)
	}
	return t
}
