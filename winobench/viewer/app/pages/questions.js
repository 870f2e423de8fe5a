// The questions of a task: a list with filters. All of its state is in the address.

import { count, html, link, Loaded, useData, useQuery, useTitle, words } from '../base.js'
import { LISTED, MARGIN, answered, margin, question, textOf } from '../answers.js'
import { Picture, Search, Select, Verdict, pageOf, listColumns, marginText, othersWith, taskOf } from '../parts.js'
import * as search from '../search.js'
import * as source from '../source.js'
import { Pages, SaveTable } from '../tables.js'

const SIZE = 25
const FILTERS = ['text', 'group', 'right', 'min_margin', 'max_margin', 'with', 'sort']
const SORTS = [['', 'order of the task'], ['margin', 'margin, most wrong first'], ['-margin', 'margin, most right first']]

export default function Questions({ slug, task, parameters }) {
  const state = useData(async () => {
    const run = await source.run(slug)
    return { run, about: taskOf(run, task) }
  }, [slug, task])
  useTitle(`Questions of ${state.value?.about.label ?? task}, ${state.value?.run.label ?? slug}`)
  return html`${state.error && html`<h1>Questions of ${task}</h1>`}<${Loaded} state=${state} what="the task">${found => html`<${List} ...${found} slug=${slug} task=${task} parameters=${parameters} />`}<//>`
}

// What the list shows: the rows' numbers and counts by verdict where something filters or sorts, else the table's order.
async function found({ slug, task, metric, filters, total }) {
  if (FILTERS.every(name => !filters[name])) return { total, length: total, at: (from, to) => Array.from({ length: Math.max(0, Math.min(to, total) - from) }, (_, place) => from + place) }
  const { rows, counts } = await search.find({ slug, task, metric, filters })
  return { total, counts, length: rows.length, at: (from, to) => Array.from(rows.slice(from, to)) }
}

// Questions with the answers of other runs.
async function readRows({ slug, task, metric, rows, others }) {
  const isNear = rows.length && Math.max(...rows.slice(0, SIZE)) - Math.min(...rows.slice(0, SIZE)) < SIZE && rows.length <= SIZE
  const reading = isNear
    ? search.neighbours({ slug, task, from: rows[0], to: rows.at(-1) + 1, columns: LISTED }).then(near => rows.map(place => near[place - rows[0]]))
    : search.read({ slug, task, rows })
  const asked = (await reading).map(question)
  const places = others.length ? await search.places({ slug, task, rows, others }) : []
  const theirs = await Promise.all(others.map(async (other, number) => {
    const there = places[number].filter(place => place >= 0)
    const read = new Map((await search.read({ slug: other, task, rows: there })).map((row, at) => [there[at], question(row)]))
    return places[number].map(place => read.get(place))
  }))
  return rows.map((place, at) => ({ place, asked: asked[at], margin: margin(asked[at], metric), others: theirs.map(some => some[at]) }))
}

function List({ run, about, slug, task, parameters }) {
  const { metric } = about
  const [values, change] = useQuery(['questions', slug, task], parameters)
  const filters = Object.fromEntries(FILTERS.map(name => [name, values[name] ?? '']))
  const page = pageOf(values)
  const others = filters.with ? filters.with.split(',') : []
  const list = useData(() => found({ slug, task, metric, filters, total: about.rows }), [slug, task, JSON.stringify(filters)])
  const shown = useData(async () => list.value && readRows({ slug, task, metric, rows: list.value.at(page * SIZE, (page + 1) * SIZE), others }), [list.value, page])
  const hasRows = Boolean(shown.value)
  const hasMargins = Boolean(filters.min_margin || filters.max_margin || filters.sort || shown.value?.some(row => row.margin !== null))
  const more = useData(async () => hasRows && { groups: await search.groups({ slug, task }), runs: await othersWith(slug, task, others) }, [hasRows])
  const label = other => more.value?.runs?.find(({ slug: name }) => name === other)?.label ?? other
  return html`
    <p class="path"><a href=${link(['run', slug])}>${run.label}</a></p>
    <h1>Questions of ${about.label}</h1>
    <${Filters} filters=${filters} about=${about} hasMargins=${hasMargins} more=${more.value || {}} change=${some => change({ ...some, page: '' })} />
    <p class="count" role="status">${list.error ? null : said(list, filters)}</p>
    ${list.error && html`<p class="problem" role="alert">${list.error.message}</p>`}
    ${!list.error && html`<${Loaded} state=${shown} what="the questions">${rows => rows && (rows.length
      ? html`<ol class="questions" aria-busy=${list.loading || shown.loading}>${rows.map(row => html`<${Item} key=${row.place} row=${row} slug=${slug} task=${task} about=${about} labels=${others.map(label)} filters=${filters} />`)}</ol>`
      : html`<p class="empty">No question passes the filters. <a href=${link(['questions', slug, task])}>Show all questions.</a></p>`)}<//>
    <${Pages} total=${list.value?.length ?? 0} size=${SIZE} page=${page} onPage=${next => change({ page: next ? next + 1 : '' })} />
    ${list.value?.length > 0 && html`<${SaveTable} caption=${`Questions of ${about.label}, ${run.label}`} name=${`questions-${task}`} columns=${listColumns(others.map(label))}
      rows=${() => readRows({ slug, task, metric, rows: list.value.at(0, list.value.length), others })} />`}`}
    <p class="note">${hasMargins && MARGIN}</p>`
}

function said({ value, loading }) {
  if (!value) return 'Searching…'
  const { counts, length, total } = value
  if (!counts) return `${count(total)} questions.${loading ? ' Searching…' : ''}`
  const parts = [['right', 'right'], ['wrong', 'wrong'], ['tie', 'tied'], ['unread', 'without a readable answer'], ['failed', 'failed']]
    .filter(([name]) => counts[name]).map(([name, text]) => `${count(counts[name])} ${text}`)
  return `${count(length)} of ${count(total)} questions${parts.length ? `: ${parts.join(', ')}` : ''}.${loading ? ' Searching…' : ''}`
}

function Filters({ filters, about, hasMargins, more, change }) {
  const select = (name, label, choices) => html`<${Select} label=${label} value=${filters[name]} choices=${choices} onChange=${value => change({ [name]: value })} />`
  const groups = more.groups ?? (filters.group ? [[filters.group, null]] : [])
  const runs = more.runs ?? (filters.with ? filters.with.split(',').map(slug => ({ slug, label: slug })) : [])
  const verdicts = about.kind === 'text' ? [['', 'all'], ['right', 'right'], ['wrong', 'wrong'], ['tie', 'ties'], ['unread', 'no readable answer'], ['failed', 'failed calls']] : [['', 'all'], ['right', 'right'], ['wrong', 'wrong, with ties'], ['tie', 'ties']]
  const isAnswered = !['bias', 'rated'].includes(about.kind)
  const limit = (name, label) => html`<label>${label}<input type="number" step="any" inputmode="decimal" value=${filters[name]} onChange=${event => change({ [name]: event.target.value })} /></label>`
  return html`<form class="filters" role="search" onSubmit=${event => event.preventDefault()}>
    <${Search} label="Words in texts and ids" value=${filters.text} onSearch=${text => change({ text })} />
    ${groups.length > 0 && select('group', 'Group', [['', 'all'], ...groups.map(([name, number]) => [name, number === null ? words(name) : `${words(name)} (${count(number)})`])])}
    ${isAnswered && html`
      ${select('right', 'Answer', verdicts)}
      ${hasMargins && html`${limit('min_margin', 'Margin from')}${limit('max_margin', 'Margin to')}`}
      ${runs.length > 0 && select('with', 'Another answer than', [['', 'any'], ...runs.map(({ slug, label }) => [slug, label])])}
      ${hasMargins && select('sort', 'Order', SORTS)}`}
    ${FILTERS.some(name => filters[name]) && html`<button type="button" onClick=${() => change(Object.fromEntries(FILTERS.map(name => [name, ''])))}>Clear</button>`}
  </form>`
}

function Item({ row: { place, asked, margin: by, others }, slug, task, about, labels, filters }) {
  const texts = asked.isText || asked.target === null || asked.texts.length === 1 ? null : asked.texts
  const chosen = answered(asked)
  const candidate = (text, number) => html`<span class=${number === asked.target ? 'right-one' : ''}>${text}${number === asked.target && html`<span class="tag">right</span>`}${number === chosen && html`<span class="tag chosen">chosen</span>`}</span>`
  const imagesCompete = !asked.isText && asked.images.length > 1 && asked.target !== null
  return html`<li class="question">
    <div class="shots">${(asked.isText ? asked.pictures ?? [] : asked.images).slice(0, 4).map((sha256, number) => html`
      <span class=${imagesCompete && number === asked.target ? 'is-right' : imagesCompete && number === chosen ? 'is-chosen' : ''}><${Picture} slug=${slug} task=${task} sha256=${sha256} about=${about} name=${`image ${number + 1}`} /></span>`)}</div>
    <div class="asked">
      <a class="question-link" data-step href=${link(['question', slug, task, place], { with: filters.with })}>${texts ? asked.id : textOf(asked) || asked.id}</a>
      ${texts && html`<p class="candidates">${texts.slice(0, 6).map(candidate)}${texts.length > 6 && html`<span class="muted">and ${texts.length - 6} more</span>`}</p>`}
      ${asked.isText && html`<p class="candidates">${asked.options.map(candidate)}</p>`}
      <p class="about"><${Verdict} row=${asked} withWords /> ${marginText(by)} ${!texts && html`<span>${asked.id}</span>`} ${(asked.groups ?? []).map(group => html`<a href=${link(['questions', slug, task], { group })}>${words(group)}</a>`)}
        ${others.map((other, number) => html`<span>${labels[number]}: ${other ? html`<${Verdict} row=${other} withWords />` : 'not asked'}</span>`)}</p>
    </div>
  </li>`
}
