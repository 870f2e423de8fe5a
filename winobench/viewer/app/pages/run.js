// One run: its settings, its numbers, and its files; or its whole report.

import { count, html, link, Loaded, Moment, useData, useEffect, useLive, useMemo, useQuery, useState, useTitle, words } from '../base.js'
import { intervalText, isShare, numberText, rowName } from '../numbers.js'
import { download } from '../saving.js'
import * as source from '../source.js'
import { Bar, Table } from '../tables.js'
import { Report } from './report.js'
import { Status } from './runs.js'

const WHILE_RUNNING = 2_000

export default function Run({ slug, part, parameters }) {
  const listed = useLive(source.runs, answer => (ofSlug(answer, slug)?.status === 'running' ? WHILE_RUNNING : undefined), [slug])
  const entry = listed.value && ofSlug(listed.value, slug)
  const [label, setLabel] = useState(slug)
  useTitle(part === 'report' ? `Report on ${label}` : label)
  useEffect(() => {
    if (entry) setLabel(entry.label)
    if (entry?.kind === 'generated') location.replace(link(['images', slug]))
  }, [entry])
  if (listed.value && !entry) return html`<h1>${slug}</h1><p class="problem" role="alert">The viewer shows no run of this name. <a href="#/">Show the runs.</a></p>`
  if (entry?.kind === 'generated') return html`<h1>${entry.label}</h1><p class="waiting" role="status">Loading the images…</p>`
  return html`
    <p class="crumbs"><a href="#/">Runs</a> / ${part ? html`<a href=${link(['run', slug])}>${label}</a> / report` : slug}</p>
    <h1>${part === 'report' ? `Report on ${label}` : label}</h1>
    <${Loaded} state=${listed.value ? { value: entry } : listed} what="the run">${() => (part === 'report'
      ? html`<${Report} slugs=${[slug]} section=${parameters.section} contents=${section => link(['run', slug, 'report'], { section })} />`
      : html`<${Overview} entry=${entry} parameters=${parameters} />`)}<//>`
}

const ofSlug = ({ runs }, slug) => runs.find(run => run.slug === slug)

function Overview({ entry, parameters }) {
  const { slug, status, updated } = entry
  const hasResults = status === 'finished' || entry.headline.length > 0
  const state = useData(async () => {
    if (!hasResults) return null
    source.forgetRun(slug)
    const [run, results] = await Promise.all([source.run(slug), source.results(slug)])
    return { run, results }
  }, [slug, status, hasResults])
  return html`
    <div class="standing"><${Status} run=${entry} /> <span class="muted">changed <${Moment} value=${updated} /></span></div>
    ${!hasResults
    ? html`<${Unfinished} entry=${entry} />`
    : html`<${Loaded} state=${state} what="the results">${found => found && (({ run, results }) => html`
        <${Links} run=${run} />
        ${Object.entries(run.failed).length > 0 && html`<div class="problem" role="alert"><p>These tasks gave no numbers:</p><ul>${Object.entries(run.failed).map(([task, reason]) => html`<li><code>${task}</code>: ${reason}</li>`)}</ul></div>`}
        ${run.notes.length > 0 && html`<ul class="notes">${run.notes.map(note => html`<li>${note}</li>`)}</ul>`}
        <${Numbers} run=${run} results=${results} parameters=${parameters} />
        <div class="two"><section><h2>Settings</h2><${Facts} facts=${run.facts} /><${Command} command=${run.command} /></section>
        <${Files} run=${run} /></div>`)(found)}<//>`}`
}

function Facts({ facts }) {
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`
}

// A command with a button that copies it.
function Command({ command }) {
  const [said, setSaid] = useState('Copy')
  if (!command) return null
  const copy = () => navigator.clipboard.writeText(command).then(() => setSaid('Copied'), () => setSaid('Select it and copy'))
  return html`<p class="how">To run it again: <button type="button" class="quiet" onClick=${copy}>${said}</button></p>
    <pre tabindex="0" aria-label="Command"><code>${command}</code></pre>`
}

function Unfinished({ entry }) {
  const said = {
    running: 'The run has no results yet. This page shows them as soon as it has.',
    interrupted: 'The run was interrupted. Repeat its command, which resumes it.',
    failed: 'The run failed before it had results.',
    unreadable: 'The folder cannot be read as a run.',
  }
  const state = useData(() => (entry.status === 'unreadable' ? null : source.config(entry.slug).catch(() => null)), [entry.slug])
  const facts = [['model', entry.model], ['tasks', entry.tasks.join(', ')], ['folder', entry.folder]].filter(([, value]) => value)
  return html`<p>${said[entry.status] ?? ''}</p>
    <h2>Settings</h2><${Facts} facts=${[...facts, ...launched(state.value)]} />`
}

// The fields of the command, where they say something.
function launched(config) {
  const fields = Object.entries(config?.config ?? {}).filter(([name, value]) => !['model', 'tasks'].includes(name) && ['string', 'number'].includes(typeof value))
  return fields.map(([name, value]) => [words(name), String(value)])
}

function Links({ run }) {
  const kinds = Object.entries(run.tasks)
  const hasBias = kinds.some(([, { kind }]) => kind === 'bias')
  return html`<nav class="tabs" aria-label="Of this run">
    <a href=${link(['run', run.slug, 'report'])}>Report</a>
    ${hasBias && html`<a href=${link(['bias', run.slug])}>Bias</a>`}
    <a href=${link([''], { chosen: run.slug })}>Compare with another run</a>
  </nav>`
}

// Rows of the table: those of whole tasks, with their sub-tasks.
function rowsOf(run, results) {
  return Object.entries(run.tasks).flatMap(([task, one]) => {
    const all = Object.entries(results.tasks[task] ?? {}).map(([name, entry]) => ({ task, name, entry: { ...entry, chance: one.chances[name] ?? null }, kind: one.kind, label: one.label, rows: one.rows, ...rowName(name), paper: one.published.filter(({ metric }) => metric === name) }))
    const whole = all.filter(({ group, kind }) => !group && kind !== 'bias')
    const bias = all.filter(({ group, kind, name }) => !group && kind === 'bias' && one.shown.includes(name))
    return [...whole, ...bias].map((row, place) => ({
      ...row,
      isFirst: !place,
      parts: all.filter(({ group, metric }) => group && (row.kind === 'bias' || metric === row.metric)),
    }))
  })
}

const matching = (row, q) => [row.task, row.label, row.name].join(' ').toLowerCase().includes(q.toLowerCase())

function Numbers({ run, results, parameters }) {
  const [query, change] = useQuery(['run', run.slug], parameters)
  const rows = useMemo(() => rowsOf(run, results), [run, results])
  const q = query.q ?? ''
  const shown = rows
    .map(row => (q && !matching(row, q) ? { ...row, parts: row.parts.filter(part => matching(part, q)) } : row))
    .filter(row => !q || matching(row, q) || row.parts.length)
  const hasParts = rows.some(({ parts }) => parts.length)
  const columns = useMemo(() => columnsOf(run, rows), [run, rows])
  return html`<h2>Results</h2>
    <search class="filters">
      <label>Filter <input type="search" value=${q} placeholder="task, sub-task or metric" onInput=${event => change({ q: event.target.value })} /></label>
      ${hasParts && html`<label class="tick"><input type="checkbox" checked=${query.groups === '1'} onChange=${event => change({ groups: event.target.checked ? '1' : '' })} /> Sub-tasks</label>`}
    </search>
    <${Table} caption=${`Results of ${run.label}`} isQuiet name=${`${run.slug}-results`} rows=${shown} columns=${columns} rowKey=${({ task, name }) => `${task}/${name}`}
      nested=${row => row.parts} isOpen=${query.groups === '1' || (q && shown.every(({ parts }) => parts.length < 20))} empty="No row matches the filter." />
    <p class="intro">Right answers in percent with their 95% interval, and chance as a line in the bar. Effect sizes and agreement with people are plain numbers.</p>`
}

const isShared = ({ independent, n }) => independent < n

const isPercent = ({ kind }) => isShare(kind)

function columnsOf(run, rows) {
  const hasPaper = rows.some(({ paper }) => paper.length)
  const columns = [
    {
      key: 'task',
      label: 'task',
      value: row => row.task,
      text: row => (row.group ? `${row.label}: ${words(row.group)}` : row.label),
      cell: row => html`<${TaskName} run=${run} row=${row} />`,
      style: 'name',
    },
    { key: 'metric', label: 'metric', text: row => words(row.metric), value: row => row.metric, parts: { group: row => row.group } },
    {
      key: 'value',
      label: 'value',
      isNumber: true,
      value: ({ entry }) => entry.value,
      text: row => numberText(row.entry.value, isPercent(row)),
      cell: row => html`<b>${numberText(row.entry.value, isPercent(row))}</b>`,
      parts: { low: ({ entry }) => entry.low, high: ({ entry }) => entry.high },
    },
    { key: 'interval', label: '95% interval', isNumber: true, value: ({ entry }) => entry.high - entry.low, text: row => intervalText(row.entry, isPercent(row)), help: 'Sorts by width', isForReading: true },
    { key: 'bar', label: 'Interval', isFixed: true, cell: row => isPercent(row) && html`<${Bar} ...${row.entry} />` },
    { key: 'chance', label: 'chance', isNumber: true, value: ({ entry }) => entry.chance, text: row => (row.entry.chance === null ? '' : numberText(row.entry.chance, isPercent(row))) },
    { key: 'n', label: 'n', isNumber: true, value: ({ entry }) => entry.n, text: ({ entry }) => count(entry.n), help: 'Examples' },
    ...(rows.some(({ entry }) => isShared(entry)) ? [{ key: 'independent', label: 'independent', isNumber: true, value: ({ entry }) => entry.independent, text: ({ entry }) => (isShared(entry) ? count(entry.independent) : ''), help: `At least so many examples ${run.kind === 'text' ? 'belong to no common pair' : 'share no image'}: they decide how wide the interval is` }] : []),
    { key: 'ties', label: 'ties', isNumber: true, value: ({ entry }) => entry.ties, text: ({ entry }) => (entry.ties ? count(entry.ties) : ''), help: 'Ties at the top count as wrong' },
  ]
  if (!hasPaper) return columns
  const said = ({ paper }) => paper.map(({ printed, model }) => `${printed} ${model}`).join('; ')
  return [...columns, { key: 'paper', label: 'paper', style: 'paper', value: said, cell: ({ paper }) => paper.map(one => html`<span title=${one.note || undefined}>${one.printed} <small>${one.model}, ${one.citation}</small></span>`) }]
}

function TaskName({ run, row }) {
  const { slug } = run
  const said = row.group ? words(row.group) : row.label
  if (row.kind === 'bias') return html`<a href=${link(['bias', slug])}>${said}</a>`
  if (!row.rows) return said
  return html`<a href=${link(['questions', slug, row.task], { group: row.group })}>${said}</a>${!row.group && row.label !== row.task && row.isFirst && html`<small>${row.task}</small>`}`
}

const EXPORTS = [
  ['results.csv', 'CSV', 'all numbers'],
  ['results.tex', 'LaTeX', 'table for a paper'],
  ['report.html', 'HTML', 'report in one file'],
  ['model-card.md', 'Markdown', 'part of a model card'],
  ['eval_results.yaml', 'YAML', 'Hugging Face evaluation results'],
  ['inspect.zip', 'ZIP', 'logs for inspect view, one a task'],
]

function Files({ run: { slug, exports } }) {
  return html`<section><h2>Files</h2><ul class="files">${EXPORTS.filter(([name]) => exports.includes(name)).map(([name, format, said]) => html`
    <li><${File} address=${source.exported(slug, name)} name=${`${slug}-${name}`} said=${said} /> <small>${name}, ${format}</small></li>`)}
    <li><${File} address=${source.raw(slug, 'results.json')} name=${`${slug}-results.json`} said="results" /> <small>results.json, as the run wrote it</small></li>
    <li><${File} address=${source.raw(slug, 'config.json')} name=${`${slug}-config.json`} said="configuration" /> <small>config.json</small></li></ul></section>`
}

// A link that saves a file, or says why there is none.
function File({ address, name, said }) {
  const [state, setState] = useState({})
  const asked = async event => {
    event.preventDefault()
    setState({ isMade: true })
    try {
      download(name, await source.file(address))
      setState({})
    } catch (error) {
      setState({ error })
    }
  }
  return html`<a href=${address} download=${name} onClick=${asked}>${said}</a>${state.isMade && html` <small role="status">is being made…</small>`}${state.error && html` <span class="problem" role="alert">${state.error.message}</span>`}`
}
