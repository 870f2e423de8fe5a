// Bias of one run: effect sizes, groups, the report's section, and the images behind.

import { count, html, link, Loaded, number, probability, useData, useEffect, useState, useTitle, words } from '../base.js'
import { Figure } from '../figures.js'
import { fewMark, intervalText, rowName } from '../numbers.js'
import { forest } from '../plots.js'
import * as source from '../source.js'
import { Bar, Pages, Table } from '../tables.js'
import { Fold, Report } from './report.js'

export default function Bias({ slug }) {
  const state = useData(async () => {
    const [run, results] = await Promise.all([source.run(slug), source.results(slug)])
    return { run, results }
  }, [slug])
  const label = state.value?.run.label ?? slug
  useTitle(`Bias of ${label}`)
  return html`
    <p class="crumbs"><a href="#/">Runs</a> / <a href=${link(['run', slug])}>${label}</a> / bias</p>
    <h1>Bias of ${label}</h1>
    <${Loaded} state=${state} what="the results">${({ run, results }) => {
      const tasks = Object.entries(run.tasks).filter(([, { kind }]) => kind === 'bias')
      if (!tasks.length) return html`<p class="empty">The run has no task on bias.</p>`
      return html`
        ${tasks.map(([task, one]) => html`<${Task} key=${task} slug=${slug} task=${task} one=${one} entries=${results.tasks[task] ?? {}} />`)}
        <${Fold} title="The report's section on bias" names="with the paper's numbers">${() => html`<${Report} slugs=${[slug]} keys=${['bias']} />`}<//>`
    }}<//>`
}

function Task({ slug, task, one, entries }) {
  const rows = Object.entries(entries).map(([name, entry]) => ({ name, entry, ...rowName(name) }))
  const pairs = rows.filter(({ entry }) => 'p_one_sided' in entry)
  const totals = rows.filter(row => !row.group && !pairs.includes(row))
  const groups = rows.filter(({ group }) => group)
  return html`<section><h2>${one.label}</h2>
    <ul class="tiles">${totals.map(({ name, entry }) => html`<li><b>${number(entry.value)}</b> ${words(name)} <small>${intervalText(entry)}, ${count(entry.n)} images${entry.without_bias !== undefined && entry.without_bias !== null && `; without any bias ${number(entry.without_bias)}`}</small></li>`)}</ul>
    ${pairs.length > 0 && html`<${Figure} title=${`Effect sizes of ${one.label}, 95% interval`} name=${`${task}-effect-sizes`} width=${720} keys=${[entries]} make=${() => forest(pairs.map(({ name, entry }) => ({ name: pairText(name), run: 0, ...entry })), `Effect sizes of ${one.label}`)} />`}
    <${Table} caption=${`Effect sizes of ${one.label}`} name=${`${task}-effect-sizes`} rows=${pairs} columns=${effectColumns(pairs)} rowKey=${({ name }) => name} empty="The task has no pairs of groups." />
    ${groups.length > 0 && html`<${Table} caption="Mean association of each group" name=${`${task}-groups`} rows=${groups} columns=${groupColumns()} rowKey=${({ name }) => name} />`}
    ${one.rows > 0 && html`<${Fold} title="Images behind the numbers">${() => html`<${Images} slug=${slug} task=${task} hasPictures=${one.has_gallery} />`}<//>`}
  </section>`
}

const reach = pairs => Math.max(0.1, ...pairs.flatMap(({ entry }) => [Math.abs(entry.low), Math.abs(entry.high)]))
const pairText = name => (/^\w+-\w+$/.test(name) ? name.replace('-', ' / ') : words(name))

function effectColumns(pairs) {
  const widest = reach(pairs)
  return [
    { key: 'pair', label: 'first / second group', value: row => row.name, text: row => pairText(row.name), style: 'name' },
    { key: 'value', label: 'effect size d', isNumber: true, value: ({ entry }) => entry.value, text: ({ entry }) => number(entry.value), parts: { low: ({ entry }) => entry.low, high: ({ entry }) => entry.high } },
    { key: 'interval', label: '95% interval', isNumber: true, isForReading: true, value: ({ entry }) => entry.high - entry.low, text: ({ entry }) => intervalText(entry) },
    { key: 'bar', label: 'Interval', isFixed: true, cell: ({ entry }) => html`<${Bar} ...${entry} chance=${0} from=${-widest} to=${widest} />` },
    { key: 'p_one_sided', label: 'p, one-sided', isNumber: true, value: ({ entry }) => entry.p_one_sided, text: ({ entry }) => probability(entry.p_one_sided), help: 'Towards the first group' },
    { key: 'p_two_sided', label: 'p, two-sided', isNumber: true, value: ({ entry }) => entry.p_two_sided, text: ({ entry }) => probability(entry.p_two_sided) },
    { key: 'permutations', label: 'permutations', isNumber: true, value: ({ entry }) => entry.permutations, text: ({ entry }) => count(entry.permutations) },
    { key: 'n', label: 'images', isNumber: true, value: ({ entry }) => entry.n, text: ({ entry }) => count(entry.n) },
  ]
}

// Errors are sums over latents, and cosines are not: three digits that matter, at any scale.
const scaled = (value, like = value) => number(value, Math.min(20, Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(like), 1e-9))))))

function groupColumns() {
  return [
    { key: 'group', label: 'group', text: row => words(row.group), value: row => row.group, style: 'name' },
    { key: 'measure', label: 'measure', text: row => words(row.metric), value: row => row.metric },
    { key: 'value', label: 'mean', isNumber: true, value: ({ entry }) => entry.value, text: ({ entry }) => scaled(entry.value), parts: { low: ({ entry }) => entry.low, high: ({ entry }) => entry.high } },
    { key: 'interval', label: '95% interval', isNumber: true, isForReading: true, value: ({ entry }) => entry.high - entry.low, text: ({ entry }) => `${scaled(entry.low, entry.value)} to ${scaled(entry.high, entry.value)}${fewMark(entry)}` },
    { key: 'n', label: 'images', isNumber: true, value: ({ entry }) => entry.n, text: ({ entry }) => count(entry.n) },
  ]
}

const A_PAGE = 24

// The images of a group in the order of their scores with a text.
function Images({ slug, task, hasPictures }) {
  const [chosen, setChosen] = useState({})
  const [page, setPage] = useState(0)
  const state = useData(() => imagesOf(slug, task), [slug, task])
  const choose = some => {
    setChosen({ ...chosen, ...some })
    setPage(0)
  }
  return html`<${Loaded} state=${state} what="the images">${({ groups, texts }) => {
    const group = groups.has(chosen.group) ? chosen.group : groups.keys().next().value
    const text = texts.includes(chosen.text) ? chosen.text : texts[0]
    const rows = groups.get(group).filter(({ scores }) => scores.has(text)).sort((one, other) => other.scores.get(text) - one.scores.get(text))
    return html`
      <div class="filters">
        <label>Group <select value=${group} onChange=${event => choose({ group: event.target.value })}>${[...groups.keys()].map(name => html`<option>${name}</option>`)}</select></label>
        <label>Text <select value=${text} onChange=${event => choose({ text: event.target.value })}>${texts.map(name => html`<option>${name}</option>`)}</select></label>
        <span class="counted">${count(rows.length)} images, the best match with the text first</span></div>
      <ul class="thumbnails">${rows.slice(page * A_PAGE, (page + 1) * A_PAGE).map(row => html`<${Thumb} key=${row.sha256 + text} hasPictures=${hasPictures} slug=${slug} task=${task} row=${row} score=${row.scores.get(text)} />`)}</ul>
      <${Pages} total=${rows.length} size=${A_PAGE} page=${page} onPage=${setPage} />`
  }}<//>`
}

async function imagesOf(slug, task) {
  const table = await source.examples(slug, task)
  const [names, images, texts, scores] = await Promise.all(['groups', 'images', 'texts', 'scores'].map(name => table.column(name)))
  const groups = new Map()
  names.forEach((some, row) => some.forEach(name => {
    if (!groups.has(name)) groups.set(name, [])
    images[row].forEach((sha256, place) => groups.get(name).push({ id: row + 1, sha256, scores: new Map(texts[row].map((text, column) => [text, scores[row][place][column]])) }))
  }))
  return { groups, texts: [...new Set(texts.flat())] }
}

function Thumb({ slug, task, row, score, hasPictures }) {
  const state = useData(() => (hasPictures ? source.image(slug, task, row.sha256).catch(() => null) : null), [row.sha256])
  const [address, setAddress] = useState()
  useEffect(() => {
    if (!state.value) return
    const made = URL.createObjectURL(state.value)
    setAddress(made)
    return () => URL.revokeObjectURL(made)
  }, [state.value])
  return html`<li>${address ? html`<img src=${address} alt=${`image ${row.id}`} />` : html`<span class="nothing">${state.loading ? '…' : 'no picture kept'}</span>`}<small>score ${scaled(score)}</small></li>`
}
